"""Which ids end a generation."""

from typing import Any

from remix_vllm.families.family import Family


def resolve_stop_token_ids(
    declared: int | list[int] | None, tokenizer: Any | None, family: Family
) -> tuple[int, ...]:
    """The ids that end a generation, ascending.

    Args:
        declared: ``eos_token_id`` of ``generation_config.json`` or ``config.json``.
        tokenizer: the checkpoint's tokenizer, or None if it is served without one. Its own
            end-of-sequence token counts, and those of the family's stop texts that it knows.
        family: the checkpoint's family.
    """
    ids = set(declared) if isinstance(declared, list) else {declared}
    if tokenizer is not None:
        known = tokenizer.get_vocab()
        ids |= {known.get(text) for text in family.stop_token_texts}
        ids.add(tokenizer.eos_token_id)
    return tuple(sorted(token_id for token_id in ids if token_id is not None))
