"""What sets one family of masked diffusion models apart from the others, as data."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family. Classes are named as ``"module:Class"``, to be imported only when needed."""

    name: str
    architectures: tuple[str, ...]
    """Values of ``architectures`` in ``config.json`` that this family serves."""
    model_type: str
    """Value of ``model_type`` in ``config.json``. Not unique between families."""
    model_class: str
    config_class: str | None
    """Our own config class for ``model_type``; None where transformers has one."""
    attention: Literal["full", "block_causal"]
    block_grid: Literal["prompt_end", "zero"]
    """Where the first block begins: at the end of the prompt, or at absolute position 0."""
    default_block_length: int
    logit_shift: bool
    """True if the output at position i predicts token i + 1."""
    mask_token_text: str
    fallback_mask_token_id: int | None
    """The published models' mask id, for checkpoints that state none."""
    stop_token_texts: tuple[str, ...]
    """Special tokens that end a generation, besides a checkpoint's end-of-sequence ids."""
