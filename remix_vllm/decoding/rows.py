"""The rows of a step: which of its tokens need logits, and whose they are."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.decoding.geometry import ExpectedSpans
from remix_vllm.decoding.state import CanvasState, SlotState

NOWHERE = torch.iinfo(torch.int64).max


class StepTokens(NamedTuple):
    """The tokens of a step, flat over its requests: ``T`` tokens of ``R`` requests."""

    starts: Tensor
    """Index of each request's first token, ``[R]`` int64."""
    first: Tensor
    """Absolute position of each request's first token, ``[R]`` int64."""
    lengths: Tensor
    """Tokens of each request, ``[R]`` int64."""
    batch: Tensor
    """Request of each token, ``[T]`` int64."""
    position: Tensor
    """Absolute position of each token, ``[T]`` int64."""
    flat: Tensor
    """Where it is in the state's tables by slot and position, flattened; ``[T]`` int64."""


class StepRows(NamedTuple):
    """The ``N`` tokens whose logits the step reads, ordered by request, those that are wanted by
    position."""

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
    flat: Tensor
    """As in :class:`StepTokens`, ``[N]`` int64."""
    active: Tensor
    """Rows that may be decided now, ``[N]`` bool; the others only leave their history."""
    wanted: Tensor
    """Rows that count, ``[N]`` bool; the others only fill up a number known to the host."""
    place: Tensor
    """Where the state keeps its mixing state, ``[N]`` int64; the place that is nobody's where not
    ``wanted``."""


def flatten(
    state: CanvasState, slots: Tensor, first: Tensor, lengths: Tensor, num_tokens: int
) -> StepTokens:
    """Lay out the spans of a step one after the other.

    Args:
        slots, first, lengths: ``[R]`` int64.
        num_tokens: the sum of ``lengths``, known to the host.
    """
    starts = lengths.cumsum(0) - lengths
    batch = torch.repeat_interleave(lengths, output_size=num_tokens)
    offsets = torch.stack([first - starts, slots * state.tokens.shape[1]])
    shift, row = offsets.index_select(1, batch).unbind(0)
    position = torch.arange(num_tokens, device=slots.device) + shift
    return StepTokens(starts, first, lengths, batch, position, row + position)


def select_rows(
    state: CanvasState,
    before: SlotState,
    tokens: StepTokens,
    expected: ExpectedSpans,
    counts: Tensor | None = None,
    total: int | None = None,
) -> StepRows:
    """Rows of a step.

    A request whose span is not the expected one is left alone: the step was planned before the
    block that its state is in had begun (asynchronous scheduling), or only computes a part of the
    prompt. So is a request with nothing left to decide.

    Args:
        counts: rows of each request, no fewer than it needs and no more than it has tokens,
            ``[R]`` int64, and their sum ``total``, where the host cannot wait to learn how many
            are needed. None for exactly those.
    """
    live = (tokens.first == expected.first) & (tokens.first + tokens.lengths == expected.end)
    live &= before.block_start < before.region_len
    end = torch.where(live, expected.block_end, 0)
    # Every position of the prompt is decided.
    active = ~state.decided.view(-1).index_select(0, tokens.flat)
    active &= tokens.position < end.index_select(0, tokens.batch)
    wanted = active
    if state.across_blocks:
        reach = torch.where(live & before.options.across_blocks, before.prompt_len, NOWHERE)
        remembered = tokens.position >= reach.index_select(0, tokens.batch)
        masked = state.tokens.view(-1).index_select(0, tokens.flat) == state.mask_token_id
        wanted = active | (remembered & masked)
    if counts is None:
        index = wanted.nonzero().squeeze(-1)
    else:
        index = _wanted_first(tokens, wanted, counts, total)
    batch = tokens.batch[index]
    of_request = torch.stack([before.slots, before.prompt_len]).index_select(1, batch)
    slot, prompt_len = of_request.unbind(0)
    position, wanted = tokens.position[index] - prompt_len, wanted[index]
    own = slot * state.history_rows + position % state.history_rows
    place = torch.where(wanted, own, len(state.mixed) - 1)
    flat, active = tokens.flat[index], active[index]
    return StepRows(live, index, batch, slot, position, flat, active, wanted, place)


def _wanted_first(tokens: StepTokens, wanted: Tensor, counts: Tensor, total: int | None) -> Tensor:
    """The first ``counts`` tokens of each request, the wanted ones before the others."""
    order = torch.argsort(2 * tokens.batch + ~wanted, stable=True)
    batch = torch.repeat_interleave(counts, output_size=total)
    nth = torch.arange(len(batch), device=batch.device) - (counts.cumsum(0) - counts)[batch]
    return order[tokens.starts[batch] + nth]


def indices_of(which: Tensor) -> Tensor:
    """Indices of the rows in ``which``, which is all that the caller has to look at. On a GPU those
    of all rows: to count them the host would have to wait, and the rows in question are most."""
    if which.device.type == "cpu":
        return which.nonzero().squeeze(-1)
    return torch.arange(len(which), device=which.device)
