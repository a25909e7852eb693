"""Which ids a model may predict: not the mask, and none that the tokenizer does not know."""

from typing import Any

import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.tokenizers import cached_tokenizer_from_config

from remix_vllm.families import family_of
from remix_vllm.families.mask_token import forbidden_tokens, resolve_mask_token_id
from remix_vllm.families.stop_tokens import resolve_stop_token_ids


def _tokenizer(vllm_config: VllmConfig) -> Any | None:
    if vllm_config.model_config.skip_tokenizer_init:
        return None
    return cached_tokenizer_from_config(vllm_config.model_config)


def mask_token_id(vllm_config: VllmConfig) -> int:
    """The id fed at undecided positions.

    Raises:
        ValueError: neither config, tokenizer nor family knows one.
    """
    model_config = vllm_config.model_config
    family = family_of(model_config.architectures)
    return resolve_mask_token_id(model_config.hf_config, _tokenizer(vllm_config), family)


def stop_token_ids(vllm_config: VllmConfig, declared: int | list[int] | None) -> list[int]:
    """The ids that end a generation: those ``declared`` by ``generation_config.json``, the config's
    and the tokenizer's end of sequence, and the family's own (LLaDA's ``<|eot_id|>``)."""
    model_config = vllm_config.model_config
    if declared is None:
        declared = getattr(model_config.hf_config, "eos_token_id", None)
    family = family_of(model_config.architectures)
    return list(resolve_stop_token_ids(declared, _tokenizer(vllm_config), family))


def forbidden_ids(vllm_config: VllmConfig, mask_token_id: int) -> Tensor:
    """Ids never predicted, ``[F]`` int64: the mask id and embedding rows beyond the tokenizer."""
    rows = vllm_config.model_config.get_vocab_size()
    forbidden = forbidden_tokens(mask_token_id, _tokenizer(vllm_config), rows)
    beyond = range(forbidden.num_valid_tokens, rows)
    return torch.tensor(sorted({forbidden.mask_token_id, *beyond}), dtype=torch.int64)
