"""LLaDA's ``config.json``: OLMo's keys, and from them the names that vLLM's Llama layers read.

The published repository brings its own class as remote code; this one is read in its place, so that
``--trust-remote-code`` is not needed. Keys: GSAI-ML/LLaDA-8B-Instruct, ``configuration_llada.py``.
"""

from typing import Any

from transformers import PretrainedConfig

from remix_vllm.families.llada import LLADA

DEFAULT_CANVAS_LENGTH = 256

# What this implementation computes, for each key whose other values mean another computation.
# A key that is absent has the value of the published models, which is the first.
IMPLEMENTED: dict[str, tuple[Any, ...]] = {
    "block_type": ("llama",),
    "block_group_size": (1,),
    "activation_type": ("silu",),
    "layer_norm_type": ("rms",),
    "layer_norm_with_affine": (True,),
    "bias_for_layer_norm": (False, None),
    "attention_layer_norm": (False,),
    "input_emb_norm": (False,),
    "scale_logits": (False,),
    "include_bias": (False,),
    "include_qkv_bias": (False, None),
    "clip_qkv": (None,),
    "alibi": (False,),
    "rope": (True,),
}

REQUIRED = (
    "d_model",
    "n_layers",
    "n_heads",
    "vocab_size",
    "max_sequence_length",
    "rms_norm_eps",
    "rope_theta",
)

SIZES = (
    "d_model",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "mlp_hidden_size",
    "vocab_size",
    "embedding_size",
    "max_sequence_length",
)


class LLaDAConfig(PretrainedConfig):
    """Config of a LLaDA checkpoint. ``vocab_size`` is the number of embedding rows.

    Raises:
        ValueError: a size that does not fit the others, or a value that is not implemented.
    """

    model_type = "llada"
    has_no_defaults_at_init = True

    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int | None = None
    multi_query_attention: bool | None = None
    mlp_hidden_size: int | None = None
    mlp_ratio: int = 4
    vocab_size: int
    embedding_size: int | None = None
    max_sequence_length: int
    weight_tying: bool = False
    rms_norm_eps: float
    rope_theta: float
    rope_full_precision: bool = True
    rope_parameters: dict[str, Any] | None = None
    mask_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None
    canvas_length: int = DEFAULT_CANVAS_LENGTH
    """vLLM takes a model whose config has this for a diffusion model."""

    def __post_init__(self, **others: Any) -> None:
        for key, allowed in IMPLEMENTED.items():
            if others.get(key, allowed[0]) not in allowed:
                raise ValueError(
                    f"{key}={others[key]!r} is not implemented for LLaDA: allowed is {allowed[0]!r}"
                )
        super().__post_init__(**others)
        for key in SIZES:
            if getattr(self, key) is not None and getattr(self, key) < 1:
                raise ValueError(f"{key}={getattr(self, key)!r}: allowed is 1 or more")
        if self.d_model % (2 * self.n_heads):
            raise ValueError(
                f"n_heads={self.n_heads}: d_model={self.d_model} must be an even multiple of it"
            )
        self._derive_llama_names()
        if self.n_heads % self.num_key_value_heads:
            raise ValueError(
                f"n_kv_heads={self.n_kv_heads}: allowed are divisors of n_heads={self.n_heads}"
            )

    def _derive_llama_names(self) -> None:
        # Tables have `embedding_size` rows, which is `vocab_size` padded; vLLM reads the latter.
        self.vocab_size = self.embedding_size or self.vocab_size
        self.hidden_size = self.d_model
        self.num_hidden_layers = self.n_layers
        self.num_attention_heads = self.n_heads
        self.num_key_value_heads = self.n_kv_heads or (
            1 if self.multi_query_attention else self.n_heads
        )
        self.head_dim = self.d_model // self.n_heads
        self.intermediate_size = self.mlp_hidden_size or self.mlp_ratio * self.d_model
        self.max_position_embeddings = self.max_sequence_length
        self.hidden_act = "silu"
        self.tie_word_embeddings = self.weight_tying

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read a ``config.json``.

        Raises:
            ValueError: the config is another model's (LLaDA-MoE's ``model_type`` is also "llada"),
                or lacks a key.
        """
        architectures = config_dict.get("architectures") or list(LLADA.architectures)
        if not any(name in LLADA.architectures for name in architectures):
            raise ValueError(
                f"architectures={architectures} with model_type 'llada' is not served: allowed is "
                f"{', '.join(LLADA.architectures)} (LLaDA-MoE declares the same model_type)"
            )
        missing = [key for key in REQUIRED if config_dict.get(key) is None]
        if missing:
            raise ValueError(f"config.json of a LLaDA model lacks {', '.join(missing)}")
        return super().from_dict(config_dict, **kwargs)
