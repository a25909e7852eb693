"""SDAR's ``config.json``: Qwen3's keys, a block length and a mask id.

The published repositories bring their own class as remote code; this one is read in its place, so
that ``--trust-remote-code`` is not needed. Keys: JetLM/SDAR-4B-Chat, ``configuration_sdar.py``.
Those for training only (``fuse_cross_entropy``, ``skip_checkpoint``, ...) are kept and not read.
"""

from typing import Any

from transformers import Qwen3Config

from remix_vllm.families.sdar import SDAR

# What this implementation computes, for each key whose other values mean another computation.
# The first is what absence means.
IMPLEMENTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "attention_bias": (False, None),
    "use_sliding_window": (False, None),
    "qk_norm": (True,),
    "is_causal": (True, None),
    "dual_chunk_attention_config": (None,),
}

REQUIRED = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
)

SIZES = (*REQUIRED, "head_dim", "block_size")


class SDARConfig(Qwen3Config):
    """Config of a dense SDAR checkpoint. ``vocab_size`` is the number of embedding rows.

    Raises:
        ValueError: a size that does not fit the others, or a value that is not implemented.
    """

    model_type = "sdar"

    block_size: int | None = None
    """Positions of a block; some published configs lack it and mean the family's default."""
    mask_token_id: int | None = None
    canvas_length: int | None = None
    """vLLM takes a model whose config has this for a diffusion model. The block's, if absent."""

    def __post_init__(self, **others: Any) -> None:
        super().__post_init__(**others)
        for key, allowed in IMPLEMENTED.items():
            if getattr(self, key, allowed[0]) not in allowed:
                raise ValueError(
                    f"{key}={getattr(self, key)!r} is not implemented for SDAR: "
                    f"allowed is {allowed[0]!r}"
                )
        if set(self.layer_types) - {"full_attention"}:
            raise ValueError(
                f"layer_types={self.layer_types} is not implemented for SDAR: "
                f"allowed is 'full_attention' for every layer"
            )
        if self.block_size is None:
            self.block_size = SDAR.default_block_length
        for key in SIZES:
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{key}={value!r}: allowed is 1 or more")
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim}: allowed are even numbers")
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_key_value_heads={self.num_key_value_heads}: allowed are divisors of "
                f"num_attention_heads={self.num_attention_heads}"
            )
        if self.canvas_length is None:
            self.canvas_length = self.block_size

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read a ``config.json``.

        Raises:
            ValueError: it lacks a key, for which Qwen3's class would put a value of its own.
        """
        missing = [key for key in REQUIRED if config_dict.get(key) is None]
        rope = config_dict.get("rope_parameters") or config_dict.get("rope_scaling") or {}
        if (config_dict | rope).get("rope_theta") is None:
            missing.append("rope_theta")
        if missing:
            raise ValueError(f"config.json of an SDAR model lacks {', '.join(missing)}")
        return super().from_dict(config_dict, **kwargs)
