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
    hf_config = vllm_config.model_config.hf_config
    block_causal = family.attention == "block_causal"
    length = hf_config.block_size if block_causal else family.default_block_length
    return EngineOptions.parse(given, length, block_causal)
