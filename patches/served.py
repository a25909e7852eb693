"""Which models the patches are for: those of :mod:`remix_vllm.families`, and no others."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm.config import ModelConfig


def is_served(model_config: "ModelConfig | None") -> bool:
    """True if the plugin serves this model."""
    from remix_vllm.families import is_served as serves

    return model_config is not None and serves(model_config.architectures or [])
