"""The rows of a step: which of its tokens need logits, and whose they are."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.decoding.state import CanvasState


class StepTokens(NamedTuple):
    """The tokens of a step, flat over its requests: ``T`` tokens of ``R`` requests."""

    slots: Tensor
    """Slot of each request, ``[R]`` int64."""
    starts: Tensor
    """Index of each request's first token, ``[R]`` int64."""
    lengths: Tensor
    """Tokens of each request, from absolute position 0 on, ``[R]`` int64."""
    batch: Tensor
    """Request of each token, ``[T]`` int64."""
    position: Tensor
    """Absolute position of each token, ``[T]`` int64."""


class StepRows(NamedTuple):
    """The ``N`` tokens whose logits the step reads, ordered by (request, position)."""

    live: Tensor
    """Requests this step advances, ``[R]`` bool."""
    token_index: Tensor
    """Index among the step's tokens, ``[N]`` int64."""
    batch: Tensor
    """Request, ``[N]`` int64."""
    slot: Tensor
    """Its slot, ``[N]`` int64."""
    position: Tensor
    """Generation index, ``[N]`` int64."""
    active: Tensor
    """Rows that may be decided now, ``[N]`` bool; the others only leave their history."""


def flatten(slots: Tensor, lengths: Tensor, num_tokens: int) -> StepTokens:
    """Lay out requests of ``lengths`` tokens one after the other.

    Args:
        slots, lengths: ``[R]`` int64.
        num_tokens: the sum of ``lengths``, known to the host.
    """
    starts = lengths.cumsum(0) - lengths
    batch = torch.repeat_interleave(lengths, output_size=num_tokens)
    position = torch.arange(num_tokens, device=slots.device) - starts[batch]
    return StepTokens(slots, starts, lengths, batch, position)


def select_rows(state: CanvasState, tokens: StepTokens, window: int) -> StepRows:
    """Rows of a step in which every request is whole: prompt, decided tokens, canvas.

    A request whose tokens do not reach the end of its canvas is left alone: the step was planned before
    the block that its state is in had begun (asynchronous scheduling), and would show the model too
    small a canvas. So is a request with nothing left to decide.
    """
    slots = tokens.slots
    start = state.block_start[slots]
    region = state.region_len[slots]
    prompt = state.prompt_len[slots]
    visible = torch.minimum(region, start + window)
    live = (tokens.lengths == prompt + visible) & (start < region)
    end = torch.where(live, state.block_end(slots), 0)

    slot = slots[tokens.batch]
    position = tokens.position - prompt[tokens.batch]
    generated = position >= 0
    active = generated & (position < end[tokens.batch]) & ~state.decided[slot, tokens.position]
    masked = state.tokens[slot, tokens.position] == state.mask_token_id
    remembered = (live & state.options.across_blocks[slots])[tokens.batch] & generated & masked
    index = (active | remembered).nonzero().squeeze(-1)
    return StepRows(live, index, tokens.batch[index], slot[index], position[index], active[index])
