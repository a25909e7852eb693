"""Engine options of a vLLM configuration."""

from collections.abc import Mapping
from typing import Any

from vllm.config import ModelConfig, VllmConfig

from remix_vllm.config import EngineOptions
from remix_vllm.families import family_of


def model_options(
    model_config: ModelConfig, additional_config: Mapping[str, Any] | None
) -> EngineOptions:
    """Options from ``additional_config["remix"]`` for a served model.

    Raises:
        OptionError: a bad key or value, or one that does not go with the model.
    """
    family = family_of(model_config.architectures)
    block_causal = family.attention == "block_causal"
    # A block-causal model knows only the block length it was trained with.
    length = model_config.hf_config.block_size if block_causal else family.default_block_length
    return EngineOptions.parse((additional_config or {}).get("remix"), length, block_causal)


def engine_options(vllm_config: VllmConfig) -> EngineOptions:
    """The same of a whole configuration, with which they travel to every process.

    Raises:
        OptionError: a bad key or value (the config hook reads the options first, so at start-up).
    """
    return model_options(vllm_config.model_config, vllm_config.additional_config)
