"""Which id stands for an undecided position, and which ids are never predicted."""

from dataclasses import dataclass
from typing import Any

from remix_vllm.families.family import Family


@dataclass(frozen=True)
class ForbiddenTokens:
    """Ids that are never predicted: the mask, and embedding rows that belong to no token."""

    mask_token_id: int
    num_valid_tokens: int
    """Ids from this one up have no text."""


def resolve_mask_token_id(hf_config: Any, tokenizer: Any | None, family: Family) -> int:
    """The mask id of a checkpoint: from its config, else its tokenizer, else its family.

    Args:
        hf_config: the checkpoint's config; ``vocab_size`` is its number of embedding rows.
        tokenizer: the checkpoint's tokenizer, or None if it is served without one.
        family: the checkpoint's family.

    Raises:
        ValueError: no source states an id, or the one found is no row of the embedding table.
    """
    rows = hf_config.vocab_size
    declared = getattr(hf_config, "mask_token_id", None)
    if declared is not None:
        return _embedding_row(declared, rows, "mask_token_id of config.json")
    if tokenizer is not None:
        declared = getattr(tokenizer, "mask_token_id", None)
        if declared is None:
            declared = tokenizer.get_vocab().get(family.mask_token_text)
        if declared is not None:
            return _embedding_row(declared, rows, "the tokenizer's mask token")
    fallback = family.fallback_mask_token_id
    if fallback is not None and fallback < rows:
        return fallback
    raise ValueError(
        f"mask_token_id: {family.name} needs a mask token, and neither config.json (mask_token_id) "
        f"nor the tokenizer (mask_token, or the token {family.mask_token_text}) states one; the "
        f"family's usual id {fallback} does not exist in a table of {rows} embeddings"
    )


def forbidden_tokens(mask_token_id: int, tokenizer: Any | None, num_rows: int) -> ForbiddenTokens:
    """What must not be predicted from ``num_rows`` logits.

    Without a tokenizer every id but the mask may be predicted. The highest id is looked up rather
    than ``len(tokenizer)``, which is the number of tokens: ids may have gaps.
    """
    if tokenizer is None:
        return ForbiddenTokens(mask_token_id, num_rows)
    highest = max(tokenizer.get_vocab().values())
    return ForbiddenTokens(mask_token_id, min(highest + 1, num_rows))


def _embedding_row(token_id: object, rows: int, source: str) -> int:
    if not isinstance(token_id, int) or not 0 <= token_id < rows:
        raise ValueError(f"{source} is {token_id!r}: allowed is an id from 0 to {rows - 1}")
    return token_id
