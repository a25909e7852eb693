"""Tiny SDAR checkpoints with the published names: config keys, tensors and special tokens.

Weights are random, norms included, so that a tensor in the wrong place shows in the logits.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from tests.models.checkpoints import CHARACTERS, character_tokenizer, write_checkpoint

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>"]
ENDOFTEXT, IM_END, MASK = (len(CHARACTERS) + n for n in (0, 2, 3))

# SDAR-4B-Chat's keys; sizes and token ids are ours. The heads together are wider than the model,
# as published. vLLM's attention on the CPU wants heads of 32 or more.
PUBLISHED_KEYS: dict[str, Any] = {
    "architectures": ["SDARForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "auto_map": {
        "AutoConfig": "configuration_sdar.SDARConfig",
        "AutoModel": "modeling_sdar.SDARModel",
        "AutoModelForCausalLM": "modeling_sdar.SDARForCausalLM",
    },
    "block_size": 4,
    "bos_token_id": ENDOFTEXT,
    "debug": False,
    "eos_token_id": ENDOFTEXT,
    "fuse_cross_entropy": True,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.02,
    "intermediate_size": 96,
    "mask_token_id": MASK,
    "max_position_embeddings": 256,
    "max_window_layers": 2,
    "model_type": "sdar",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "pad_token_id": ENDOFTEXT,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.52.3",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 128,
}


def sdar_config(**changes: Any) -> dict[str, Any]:
    """A ``config.json``; ``None`` for a key removes it."""
    config = PUBLISHED_KEYS | changes
    return {k: v for k, v in config.items() if v is not None or k not in changes}


def sdar_tensors(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Random float32 tensors of a checkpoint of this config, by name."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) / columns**0.5

    def norm(size: int) -> Tensor:
        return 1 + 0.2 * torch.randn(size, generator=generator)

    d_model, hidden, rows = (
        config[key] for key in ("hidden_size", "intermediate_size", "vocab_size")
    )
    head_dim = config["head_dim"]
    q_size = config["num_attention_heads"] * head_dim
    kv_size = config["num_key_value_heads"] * head_dim
    tensors = {
        "model.embed_tokens": torch.randn(rows, d_model, generator=generator),
        "model.norm": norm(d_model),
    }
    if not config["tie_word_embeddings"]:
        tensors["lm_head"] = matrix(rows, d_model)
    for n in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm": norm(d_model),
            "self_attn.q_proj": matrix(q_size, d_model),
            "self_attn.k_proj": matrix(kv_size, d_model),
            "self_attn.v_proj": matrix(kv_size, d_model),
            "self_attn.o_proj": matrix(d_model, q_size),
            "self_attn.q_norm": norm(head_dim),
            "self_attn.k_norm": norm(head_dim),
            "post_attention_layernorm": norm(d_model),
            "mlp.gate_proj": matrix(hidden, d_model),
            "mlp.up_proj": matrix(hidden, d_model),
            "mlp.down_proj": matrix(d_model, hidden),
        }
        tensors |= {f"model.layers.{n}.{name}": tensor for name, tensor in layer.items()}
    return {f"{name}.weight": tensor for name, tensor in tensors.items()}


def write_sdar(path: Path, seed: int = 0, shards: int = 1, **changes: Any) -> Path:
    """A checkpoint of :func:`sdar_config` with random weights, without a tokenizer."""
    config = sdar_config(**changes)
    return write_checkpoint(path, config, sdar_tensors(config, seed), shards)


def sdar_tokenizer(mask_token: str | None = "<|MASK|>") -> PreTrainedTokenizerFast:
    """One token a character, then SDAR's special tokens: 104 ids. It has no chat template."""
    specials = [text for text in SPECIAL_TOKENS if text != "<|MASK|>" or mask_token]
    return PreTrainedTokenizerFast(
        tokenizer_object=character_tokenizer(specials),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        mask_token=mask_token,
    )
