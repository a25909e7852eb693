"""Tiny LLaDA checkpoints with the published names: config keys, tensors and special tokens.

Weights are random, norms included, so that a tensor in the wrong place shows in the logits.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

# All of LLaDA-8B-Instruct's keys; sizes and token ids are ours. vLLM's attention on the CPU wants
# heads of 32 or more.
PUBLISHED_KEYS: dict[str, Any] = {
    "activation_type": "silu",
    "alibi": False,
    "alibi_bias_max": 8.0,
    "architectures": ["LLaDAModelLM"],
    "attention_dropout": 0.0,
    "attention_layer_norm": False,
    "attention_layer_norm_with_affine": True,
    "auto_map": {
        "AutoConfig": "configuration_llada.LLaDAConfig",
        "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        "AutoModel": "modeling_llada.LLaDAModelLM",
    },
    "bias_for_layer_norm": False,
    "block_group_size": 1,
    "block_type": "llama",
    "d_model": 64,
    "embedding_dropout": 0.0,
    "embedding_size": 128,
    "eos_token_id": 101,
    "flash_attention": False,
    "include_bias": False,
    "include_qkv_bias": False,
    "init_cutoff_factor": None,
    "init_device": "meta",
    "init_fn": "mitchell",
    "init_std": 0.02,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "mask_token_id": 102,
    "max_sequence_length": 256,
    "mlp_hidden_size": 96,
    "mlp_ratio": 4,
    "model_type": "llada",
    "multi_query_attention": None,
    "n_heads": 2,
    "n_kv_heads": 2,
    "n_layers": 2,
    "pad_token_id": 101,
    "precision": "amp_bf16",
    "residual_dropout": 0.0,
    "rms_norm_eps": 1e-5,
    "rope": True,
    "rope_full_precision": True,
    "rope_theta": 500000.0,
    "scale_logits": False,
    "transformers_version": "4.46.3",
    "use_cache": False,
    "vocab_size": 128,
    "weight_tying": False,
}

CHARACTERS = [chr(code) for code in range(32, 127)] + ["\n", "\t", "é", "ß", "中"]
SPECIAL_TOKENS = [
    "<|startoftext|>",
    "<|endoftext|>",
    "<|mdm_mask|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]


def llada_config(**changes: Any) -> dict[str, Any]:
    """A ``config.json``; ``None`` for a key removes it."""
    config = PUBLISHED_KEYS | changes
    return {k: v for k, v in config.items() if v is not None or k not in changes}


def llada_tensors(config: dict[str, Any], seed: int) -> dict[str, Tensor]:
    """Random float32 tensors of a checkpoint of this config, by name."""
    generator = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) / columns**0.5

    d_model, hidden, rows = config["d_model"], config["mlp_hidden_size"], config["embedding_size"]
    kv_size = d_model // config["n_heads"] * config["n_kv_heads"]

    def norm() -> Tensor:
        return 1 + 0.2 * torch.randn(d_model, generator=generator)

    tensors = {"wte": torch.randn(rows, d_model, generator=generator), "ln_f": norm()}
    if not config["weight_tying"]:
        tensors["ff_out"] = matrix(rows, d_model)
    for n in range(config["n_layers"]):
        block = {
            "attn_norm": norm(),
            "q_proj": matrix(d_model, d_model),
            "k_proj": matrix(kv_size, d_model),
            "v_proj": matrix(kv_size, d_model),
            "attn_out": matrix(d_model, d_model),
            "ff_norm": norm(),
            "ff_proj": matrix(hidden, d_model),
            "up_proj": matrix(hidden, d_model),
            "ff_out": matrix(d_model, hidden),
        }
        tensors |= {f"blocks.{n}.{name}": tensor for name, tensor in block.items()}
    return {f"model.transformer.{name}.weight": tensor for name, tensor in tensors.items()}


def write_checkpoint(
    path: Path, config: dict[str, Any], tensors: dict[str, Tensor], shards: int = 1
) -> Path:
    """Write ``config.json`` and the tensors, split over ``shards`` files with an index."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if shards == 1:
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        return path
    places = {}
    for n in range(shards):
        file = f"model-{n + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in list(tensors)[n::shards]}
        save_file(part, path / file, metadata={"format": "pt"})
        places |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": places}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


def write_llada(path: Path, seed: int = 0, shards: int = 1, **changes: Any) -> Path:
    """A checkpoint of :func:`llada_config` with random weights, without a tokenizer."""
    config = llada_config(**changes)
    return write_checkpoint(path, config, llada_tensors(config, seed), shards)


def character_tokenizer(special_tokens: list[str]) -> Tokenizer:
    """One token a character, then ``special_tokens``."""
    vocabulary = {character: n for n, character in enumerate(CHARACTERS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=" "))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    added = [AddedToken(text, special=True, normalized=False) for text in special_tokens]
    tokenizer.add_special_tokens(added)
    return tokenizer


def tiny_tokenizer(mask_token: str | None = "<|mdm_mask|>") -> PreTrainedTokenizerFast:
    """One token a character, then LLaDA's special tokens: 106 ids. It has no chat template."""
    specials = [text for text in SPECIAL_TOKENS if text != "<|mdm_mask|>" or mask_token]
    return PreTrainedTokenizerFast(
        tokenizer_object=character_tokenizer(specials),
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        mask_token=mask_token,
    )
