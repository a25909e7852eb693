"""Engine options of a vLLM configuration."""

from vllm.config import VllmConfig

from remix_vllm.config import EngineOptions
from remix_vllm.families import family_of


def engine_options(vllm_config: VllmConfig) -> EngineOptions:
    """Options from ``additional_config["remix"]``, which travels to every process with the configuration.

    Raises:
        OptionError: a bad key or value (the config hook reads the options first, so at start-up).
    """
    family = family_of(vllm_config.model_config.architectures)
    given = (vllm_config.additional_config or {}).get("remix")
    return EngineOptions.parse(given, family.default_block_length)
