"""What the oracles of decoding work on and return: a plain model, a result, its steps."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class ReferenceModel(Protocol):
    """A masked diffusion language model with full attention and unshifted logits."""

    @property
    def embedding(self) -> Tensor:
        """The input embedding table, ``[V, H]``."""

    def embed(self, token_ids: Tensor) -> Tensor:
        """Rows of the input embedding table: int64 ``[L]`` to ``[L, H]``."""

    def __call__(self, inputs_embeds: Tensor) -> Tensor:
        """One bidirectional forward: ``[L, H]`` to the logits ``[L, V]`` of every position."""


@dataclass
class StepTrace:
    """What one forward saw and what was decided after it."""

    block: int
    """The active block."""
    input_state: str
    """The state each visible generation position was fed in: ``M``, ``C`` or ``T``. A position
    decided as the mask id (``exclude_mask`` off) is fed the mask embedding: it shows as ``M``."""
    accepted: list[int]
    """Generation positions decided by this step, ascending."""


@dataclass
class Generation:
    """What a request gets."""

    token_ids: list[int]
    """The generated part, up to and including the first stop token."""
    nfe: int
    """Number of forwards."""
    trace: list[StepTrace]
    """One entry per forward."""
