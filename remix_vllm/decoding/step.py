"""One denoising step of a batch: logits in, decided tokens out. The only writer of running
state."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.decoding.rows import StepRows
from remix_vllm.decoding.rules import accept, kept_weights
from remix_vllm.decoding.state import CanvasState
from remix_vllm.decoding.strategies import budget
from remix_vllm.ops.row_statistics import RowStatistics, row_statistics


class StepLimits(NamedTuple):
    """What is the same for every step of an engine."""

    forbidden: Tensor
    """Ids never predicted, ``[V]`` bool."""
    window: int
    """Canvas positions from the active block's start."""
    whole_blocks: bool
    """Return tokens block by block instead of as soon as everything left of them is decided."""
    statistics_rows: int
    """Rows of logits in float32 at once."""


class Committed(NamedTuple):
    """Tokens a step returns: the first ``lengths`` of each row of ``tokens``."""

    tokens: Tensor
    """``[R, window]`` int64."""
    lengths: Tensor
    """``[R]`` int64."""
    counts: Tensor
    """Rows of each request that were accepted, that mix, that were rejected, and that are corrupt,
    ``[R, 4]`` int64. A request with a corrupt row decides nothing and has none of the others."""


def decode(
    state: CanvasState, slots: Tensor, rows: StepRows, logits: Tensor, limits: StepLimits
) -> Committed:
    """Advance every live request by one step.

    Args:
        slots: slot of each request, ``[R]`` int64.
        rows: the rows ``logits`` belong to.
        logits: ``[N, V]``.
    """
    options = state.options
    remembers = options.mixes[rows.slot] & (rows.active | options.across_blocks[rows.slot])
    history_rows = state.row(rows.slot, rows.position)
    compared = state.has_history[history_rows] & remembers
    statistics = row_statistics(
        logits,
        limits.forbidden,
        options.exclude_mask[rows.slot],
        remembers,
        history_rows,
        state.history,
        state.has_history,
        state.top_k,
        limits.statistics_rows,
    )
    # NaN or infinity among the ids that may be predicted, or nothing finite: no distribution.
    corrupt = statistics.confidence.isnan()
    sound = torch.zeros_like(slots).index_add_(0, rows.batch, corrupt.to(torch.int64)) == 0
    remembers &= sound[rows.batch]
    rows = rows._replace(active=rows.active & sound[rows.batch])
    undecided = torch.zeros_like(slots).scatter_add(0, rows.batch, rows.active.to(torch.int64))
    fresh = rows.live & (state.steps_in_block[slots] == 0)
    state.block_undecided[slots] = torch.where(fresh, undecided, state.block_undecided[slots])
    limit = budget(state, slots, undecided)
    accepted = accept(statistics.confidence, rows.active, rows.batch, *limit)

    advanced = rows.live.to(torch.int64)
    for counter in (state.steps, state.steps_in_block, state.nfe):
        counter[slots] += advanced
    token = _write_tokens(state, rows, accepted, statistics.token)
    mixed, rejected = _remember(
        state, rows, history_rows, remembers, compared, accepted, token, statistics
    )
    left = torch.zeros_like(slots).scatter_add(
        0, rows.batch, (rows.active & ~accepted).to(torch.int64)
    )
    # A corrupt step counts as one, as the scheduler believes, which may have planned the next.
    _advance_blocks(state, slots, rows.live & sound & (left == 0))
    outcomes = torch.stack([accepted, mixed, rejected, corrupt], 1).to(torch.int64)
    counts = outcomes.new_zeros(len(slots), 4).index_add_(0, rows.batch, outcomes)
    return Committed(*_commit(state, slots, limits), counts)


def _write_tokens(state: CanvasState, rows: StepRows, accepted: Tensor, token: Tensor) -> Tensor:
    """Decide the accepted rows; a token already returned before a preemption stays what it was."""
    at = state.prompt_len[rows.slot] + rows.position
    pinned = state.pinned[rows.slot, at]
    # Deciding the mask (official rules) is not final: what was returned came later.
    token = torch.where((pinned >= 0) & (token != state.mask_token_id), pinned, token)
    state.tokens[rows.slot, at] = torch.where(accepted, token, state.tokens[rows.slot, at])
    state.decided[rows.slot, at] |= accepted
    return token


def _remember(
    state: CanvasState,
    rows: StepRows,
    history_rows: Tensor,
    remembers: Tensor,
    compared: Tensor,
    accepted: Tensor,
    token: Tensor,
    statistics: RowStatistics,
) -> tuple[Tensor, Tensor]:
    """Mix or reject what is still undecided, and keep the distributions the next step compares
    with.

    Returns:
        Rows that mix and rows that were rejected, ``[N]`` bool.
    """
    options, slot = state.options, rows.slot
    undecided = rows.active & ~accepted
    rejected = undecided & compared & (statistics.divergence > options.js_threshold[slot])
    started = state.steps[slot] >= options.mixing_start[slot]
    sticky = options.sticky[slot]
    # The official code goes on comparing a position it decided as the mask, which it will open
    # again.
    reopens = options.across_blocks[slot] & (token == state.mask_token_id)
    kept = remembers & ~(rejected & ~sticky) & (~accepted | reopens)

    mixed = undecided & remembers & ~rejected & started
    state.mixed[history_rows] = mixed
    state.owner[history_rows] = rows.position
    state.candidate_ids[history_rows] = statistics.top_id
    state.candidate_weights[history_rows] = kept_weights(
        statistics.top_probability,
        options.mix_top_k[slot],
        options.alpha_scale[slot],
        options.alpha_min[slot],
        options.alpha_max[slot],
    )
    state.has_history[history_rows] = kept
    state.history.index_fill_(0, history_rows[rejected & sticky], 0.0)
    return mixed, rejected


def _advance_blocks(state: CanvasState, slots: Tensor, finished: Tensor) -> None:
    """Move requests whose active block is decided on to the next one."""
    end = state.block_end(slots)
    state.block_start[slots] = torch.where(finished, end, state.block_start[slots])
    state.steps_in_block[slots] = torch.where(finished, 0, state.steps_in_block[slots])
    opened = finished & ~state.options.exclude_mask[slots] & (end < state.region_len[slots])
    for slot in slots[opened].tolist():
        first = int(state.prompt_len[slot])
        last = first + int(state.block_end(slots.new_tensor([slot])))
        masks = state.tokens[slot, first:last] == state.mask_token_id
        state.decided[slot, first:last] &= ~masks


def _commit(state: CanvasState, slots: Tensor, limits: StepLimits) -> tuple[Tensor, Tensor]:
    """Tokens and lengths of the decided prefix. A decided mask, which the official rules allow, is
    not final before the last block is done."""
    committed, region = state.committed[slots], state.region_len[slots]
    start = state.block_start[slots]
    end = start if limits.whole_blocks else state.block_end(slots)
    position = committed[:, None] + torch.arange(limits.window, device=slots.device)
    at = (state.prompt_len[slots][:, None] + position).clamp_max(state.tokens.shape[1] - 1)
    tokens = state.tokens[slots[:, None], at]
    final = (tokens != state.mask_token_id) | (start >= region)[:, None]
    closed = (position < end[:, None]) & state.decided[slots[:, None], at] & final
    count = closed.to(torch.int64).cumprod(1).sum(1)
    state.committed[slots] = committed + count
    return tokens, count
