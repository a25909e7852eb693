"""One denoising step of a batch: logits in, decided tokens out. The only writer of running
state."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.decoding.rows import StepRows, indices_of, places
from remix_vllm.decoding.rules import accept, kept_weights
from remix_vllm.decoding.state import CanvasState
from remix_vllm.decoding.strategies import budget
from remix_vllm.ops.candidates import top_candidates
from remix_vllm.ops.row_passes import Compared, RowPasses
from remix_vllm.ops.row_scan import RowScan


class StepLimits(NamedTuple):
    """What is the same for every step of an engine."""

    forbidden: Tensor
    """Ids never predicted, ``[F]`` int64."""
    window: int
    """Canvas positions from the active block's start."""
    whole_blocks: bool
    """Return tokens block by block instead of as soon as everything left of them is decided."""
    passes: RowPasses


class Committed(NamedTuple):
    """What a step returns of ``R`` requests."""

    tokens: Tensor
    """The first ``lengths`` of each row, ``[R, window]`` int64."""
    lengths: Tensor
    """``[R]`` int64."""
    counts: Tensor
    """Rows of each request that were accepted, that mix, that were rejected, and that are corrupt,
    ``[R, 4]`` int64. A request with a corrupt row decides nothing and has none of the others."""
    undecided: Tensor
    """Positions left undecided in the active block, if that stays the same; ``[R]`` int64."""


def decode(
    state: CanvasState, slots: Tensor, rows: StepRows, logits: Tensor, limits: StepLimits
) -> Committed:
    """Advance every live request by one step.

    Args:
        slots: slot of each request, ``[R]`` int64.
        rows: the rows ``logits`` belong to.
        logits: ``[N, V]``, overwritten where ids are forbidden.
    """
    options = state.options
    _forbid(logits, limits.forbidden, options.exclude_mask[rows.slot])
    scan = limits.passes.scan(logits)
    # NaN or infinity among the ids that may be predicted, or nothing finite: no distribution.
    corrupt = rows.wanted & ~scan.logsumexp.isfinite()
    sound = _per_request(corrupt, rows.batch, slots) == 0
    rows = rows._replace(active=rows.active & sound[rows.batch])

    undecided = _per_request(rows.active, rows.batch, slots)
    fresh = rows.live & (state.steps_in_block[slots] == 0)
    state.block_undecided[slots] = torch.where(fresh, undecided, state.block_undecided[slots])
    limit = budget(state, slots, undecided)
    accepted = accept(scan.confidence, rows.active, rows.batch, *limit)

    advanced = rows.live.to(torch.int64)
    for counter in (state.steps, state.steps_in_block, state.nfe):
        counter[slots] += advanced
    # A corrupt step counts as one, as the scheduler believes, which may have planned the next.
    rows = rows._replace(live=rows.live & sound)
    token = _write_tokens(state, rows, accepted, scan.token)
    left = rows.active & ~accepted
    mixed, rejected = _remember(state, rows, left, accepted, token, logits, scan)
    remaining = _per_request(left, rows.batch, slots)
    _advance_blocks(state, slots, rows.live & (remaining == 0))
    outcomes = torch.stack([accepted, mixed, rejected, corrupt], dim=1).to(torch.int64)
    counts = outcomes.new_zeros(len(slots), 4).index_add_(0, rows.batch, outcomes)
    return Committed(*_commit(state, slots, limits), counts, remaining)


def _per_request(which: Tensor, batch: Tensor, slots: Tensor) -> Tensor:
    """Count rows of each request: ``[R]`` int64."""
    return torch.zeros_like(slots).scatter_add(0, batch, which.to(torch.int64))


def _forbid(logits: Tensor, forbidden: Tensor, exclude: Tensor) -> None:
    banned = logits.index_select(1, forbidden)
    logits.index_copy_(1, forbidden, banned.masked_fill(exclude[:, None], -torch.inf))


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
    left: Tensor,
    accepted: Tensor,
    token: Tensor,
    logits: Tensor,
    scan: RowScan,
) -> tuple[Tensor, Tensor]:
    """Mix or reject what is still undecided, and keep the distributions the next step compares
    with.

    Args:
        left: rows still undecided, ``[N]`` bool.

    Returns:
        rows that mix and rows that were rejected, ``[N]`` bool.
    """
    options, slot = state.options, rows.slot
    remembers = options.mixes[slot] & (rows.active | options.across_blocks[slot])
    remembers &= rows.live[rows.batch] & rows.wanted
    # The official code goes on comparing a position it decided as the mask, which it will open
    # again.
    remembers &= ~accepted | (options.across_blocks[slot] & (token == state.mask_token_id))
    at = places(state, rows)
    rejected = left & remembers & state.has_history[at]
    mixed = left & remembers & (state.steps[slot] >= options.mixing_start[slot])
    state.mixed[at] = False
    state.has_history[at] = False
    some = indices_of(remembers)
    if not len(some):
        return mixed, rejected

    candidates = top_candidates(logits, scan, some, state.top_k)
    slot, at, kept = slot[some], at[some], remembers[some]
    compared = Compared(some, at, rejected[some], kept, options.js_threshold[slot])
    moved = state.history.replace(logits, scan, candidates, compared)
    rejected[some] = moved
    mixed &= ~rejected
    sticky = options.sticky[slot]
    state.mixed[at] = mixed[some]
    state.candidate_ids[at] = candidates.ids
    state.candidate_weights[at] = kept_weights(
        candidates.probabilities,
        options.mix_top_k[slot],
        options.alpha_scale[slot],
        options.alpha_min[slot],
        options.alpha_max[slot],
    )
    state.has_history[at] = kept & (sticky | ~moved)
    state.history.clear(at, moved & sticky)
    return mixed, rejected


def _advance_blocks(state: CanvasState, slots: Tensor, finished: Tensor) -> None:
    """Move requests whose active block is decided on to the next one."""
    end = state.block_end(slots)
    state.block_start[slots] = torch.where(finished, end, state.block_start[slots])
    state.steps_in_block[slots] = torch.where(finished, 0, state.steps_in_block[slots])
    if not state.deciding_masks:
        return
    opened = finished & ~state.options.exclude_mask[slots] & (end < state.region_len[slots])
    some = indices_of(opened)
    slots, opened = slots[some], opened[some]
    # Masks decided in any block before are open again.
    first = state.prompt_len[slots]
    last = first + state.block_end(slots)
    position = torch.arange(state.tokens.shape[1], device=slots.device)
    reopened = (position >= first[:, None]) & (position < last[:, None]) & opened[:, None]
    reopened &= state.tokens[slots] == state.mask_token_id
    state.decided[slots] &= ~reopened


def _commit(state: CanvasState, slots: Tensor, limits: StepLimits) -> tuple[Tensor, Tensor]:
    """Return the decided prefix. A decided mask, which the official rules allow, is not final
    before the last block is done."""
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
