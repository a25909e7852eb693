"""Telling vLLM about the families. Both functions may be called any number of times."""

from importlib import import_module

from remix_vllm.families import FAMILIES


def register_configs() -> None:
    """Let vLLM read the families' ``config.json`` with our classes.

    vLLM's own table of config classes has precedence over a checkpoint's ``auto_map``, so that no
    remote code is asked for or run (``HFConfigParser.parse``).
    """
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    for family in FAMILIES:
        if family.config_class is not None:
            module, name = family.config_class.split(":")
            _CONFIG_REGISTRY[family.model_type] = getattr(import_module(module), name)


def register_models() -> None:
    """Add the families' architectures to vLLM's model registry, without importing the models."""
    from vllm import ModelRegistry

    for family in FAMILIES:
        for architecture in family.architectures:
            if architecture not in ModelRegistry.models:
                ModelRegistry.register_model(architecture, family.model_class)
