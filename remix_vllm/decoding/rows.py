"""The rows of a step: which of its tokens need logits, and whose they are."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.decoding.geometry import ExpectedSpans
from remix_vllm.decoding.state import CanvasState


class StepTokens(NamedTuple):
    """The tokens of a step, flat over its requests: ``T`` tokens of ``R`` requests."""

    slots: Tensor
    """Slot of each request, ``[R]`` int64."""
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
    wanted: Tensor
    """Rows that count, ``[N]`` bool; the others only fill up a number known to the host."""


def flatten(slots: Tensor, first: Tensor, lengths: Tensor, num_tokens: int) -> StepTokens:
    """Lay out the spans of a step one after the other.

    Args:
        slots, first, lengths: ``[R]`` int64.
        num_tokens: the sum of ``lengths``, known to the host.
    """
    starts = lengths.cumsum(0) - lengths
    batch = torch.repeat_interleave(lengths, output_size=num_tokens)
    position = torch.arange(num_tokens, device=slots.device) + (first - starts)[batch]
    return StepTokens(slots, starts, first, lengths, batch, position)


def select_rows(
    state: CanvasState, tokens: StepTokens, expected: ExpectedSpans, counts: Tensor | None = None,
    total: int | None = None,
) -> StepRows:  # fmt: skip
    """Rows of a step.

    A request whose span is not the expected one is left alone: the step was planned before the
    block that its state is in had begun (asynchronous scheduling), or only computes a part of the
    prompt. So is a request with nothing left to decide.

    Args:
        counts: rows of each request, no fewer than it needs and no more than it has tokens,
            ``[R]`` int64, and their sum ``total``, where the host cannot wait to learn how many
            are needed. None for exactly those.
    """
    slots = tokens.slots
    planned_end = tokens.first + tokens.lengths
    live = (tokens.first == expected.first) & (planned_end == expected.end)
    live &= state.block_start[slots] < state.region_len[slots]
    end = torch.where(live, state.block_end(slots), 0)

    slot = slots[tokens.batch]
    position = tokens.position - state.prompt_len[slot]
    generated = position >= 0
    active = generated & (position < end[tokens.batch]) & ~state.decided[slot, tokens.position]
    masked = state.tokens[slot, tokens.position] == state.mask_token_id
    remembered = (live & state.options.across_blocks[slots])[tokens.batch] & generated & masked
    wanted = active | remembered
    if counts is None:
        index = wanted.nonzero().squeeze(-1)
    else:
        index = _wanted_first(tokens, wanted, counts, total)
    return StepRows(
        live, index, tokens.batch[index], slot[index], position[index], active[index], wanted[index]
    )


def _wanted_first(tokens: StepTokens, wanted: Tensor, counts: Tensor, total: int | None) -> Tensor:
    """The first ``counts`` tokens of each request, the wanted ones before the others."""
    order = torch.argsort(2 * tokens.batch + ~wanted, stable=True)
    batch = torch.repeat_interleave(counts, output_size=total)
    nth = torch.arange(len(batch), device=batch.device) - (counts.cumsum(0) - counts)[batch]
    return order[tokens.starts[batch] + nth]


def places(state: CanvasState, rows: StepRows) -> Tensor:
    """Where the mixing state of each row is: ``[N]`` int64."""
    own = rows.slot * state.history_rows + rows.position % state.history_rows
    return torch.where(rows.wanted, own, len(state.mixed) - 1)


def indices_of(which: Tensor) -> Tensor:
    """Indices of the rows in ``which``, which is all that the caller has to look at. On a GPU those
    of all rows: to count them the host would have to wait, and the rows in question are most."""
    if which.device.type == "cpu":
        return which.nonzero().squeeze(-1)
    return torch.arange(len(which), device=which.device)
