"""One denoising step of a batch: logits in, decided tokens out. The only writer of running
state."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.decoding.rows import StepRows, indices_of
from remix_vllm.decoding.rules import accept, kept_weights
from remix_vllm.decoding.state import CanvasState, SlotState
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
    after: SlotState
    """Where the requests are now."""


def decode(
    state: CanvasState, before: SlotState, rows: StepRows, logits: Tensor, limits: StepLimits
) -> Committed:
    """Advance every live request by one step.

    Args:
        before: where the requests are.
        rows: the rows ``logits`` belong to.
        logits: ``[N, V]``, overwritten where ids are forbidden.
    """
    options, batch = before.options, rows.batch
    exclude = options.exclude_mask.index_select(0, batch) if state.deciding_masks else None
    _forbid(logits, limits.forbidden, exclude)
    scan = limits.passes.scan(logits)
    # NaN or infinity among the ids that may be predicted, or nothing finite: no distribution.
    corrupt = rows.wanted & ~scan.logsumexp.isfinite()
    undecided, num_corrupt = _per_request(before, batch, rows.active, corrupt)
    sound = num_corrupt == 0
    undecided = torch.where(sound, undecided, 0)
    rows = rows._replace(active=rows.active & sound.index_select(0, batch))
    fresh = rows.live & (before.steps_in_block == 0)
    now = before._replace(block_undecided=torch.where(fresh, undecided, before.block_undecided))
    limit = budget(now, undecided)
    accepted = accept(scan.confidence, rows.active, batch, *limit)

    advanced = rows.live.to(torch.int64)
    now = now._replace(
        steps=before.steps + advanced,
        steps_in_block=before.steps_in_block + advanced,
        nfe=before.nfe + advanced,
    )
    # A corrupt step counts as one, as the scheduler believes, which may have planned the next.
    rows = rows._replace(live=rows.live & sound)
    token = _write_tokens(state, rows, accepted, scan.token)
    left = rows.active & ~accepted
    mixed, rejected = _remember(state, now, rows, left, accepted, token, logits, scan)
    counts = _per_request(before, batch, accepted, mixed, rejected, corrupt, left)
    remaining = counts[4]
    now = _advance_blocks(state, now, rows.live & (remaining == 0))
    tokens, lengths = _commit(state, now, limits)
    now = now._replace(committed=now.committed + lengths)
    state.write(now)
    return Committed(tokens, lengths, torch.stack(counts[:4], dim=1), remaining, now)


def _per_request(state: SlotState, batch: Tensor, *which: Tensor) -> tuple[Tensor, ...]:
    """Count rows of each request, for each of ``which`` ``[N]`` bool: ``[R]`` int64 each."""
    each = torch.stack(which, dim=1).to(torch.int64)
    return each.new_zeros(len(state.slots), len(which)).index_add_(0, batch, each).unbind(1)


def _forbid(logits: Tensor, forbidden: Tensor, exclude: Tensor | None) -> None:
    """In the rows ``exclude``; None for all."""
    if exclude is None:
        logits.index_fill_(1, forbidden, -torch.inf)
        return
    banned = logits.index_select(1, forbidden)
    logits.index_copy_(1, forbidden, banned.masked_fill(exclude[:, None], -torch.inf))


def _write_tokens(state: CanvasState, rows: StepRows, accepted: Tensor, token: Tensor) -> Tensor:
    """Decide the accepted rows; a token already returned before a preemption stays what it was."""
    if state.resumed:
        pinned = state.pinned.view(-1).index_select(0, rows.flat)
        # Deciding the mask (official rules) is not final: what was returned came later.
        token = torch.where((pinned >= 0) & (token != state.mask_token_id), pinned, token)
    tokens, decided = state.tokens.view(-1), state.decided.view(-1)
    old = tokens.index_select(0, rows.flat)
    tokens.index_copy_(0, rows.flat, torch.where(accepted, token, old))
    decided.index_copy_(0, rows.flat, decided.index_select(0, rows.flat) | accepted)
    return token


def _remember(
    state: CanvasState,
    now: SlotState,
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
        now: with this step counted.
        left: rows still undecided, ``[N]`` bool.

    Returns:
        rows that mix and rows that were rejected, ``[N]`` bool.
    """
    of_request = torch.stack([now.options.mixes & rows.live, now.steps >= now.options.mixing_start])
    remembers, may_mix = of_request.index_select(1, rows.batch).unbind(0)
    if state.across_blocks:
        across = now.options.across_blocks.index_select(0, rows.batch)
        # The official code goes on comparing a position it decided as the mask, which it will open
        # again.
        masked = across & (token == state.mask_token_id)
        remembers = remembers & rows.wanted & (left | across) & (~accepted | masked)
    else:
        remembers = remembers & left
    at = rows.place
    rejected = remembers & left & state.has_history.index_select(0, at)
    mixed = remembers & left & may_mix
    state.mixed.index_fill_(0, at, False)
    state.has_history.index_fill_(0, at, False)
    some = indices_of(remembers)
    if not len(some):
        return mixed, rejected

    candidates = top_candidates(logits, scan, some, state.top_k)
    options = state.options.of(rows.slot.index_select(0, some))
    at, kept = at.index_select(0, some), remembers.index_select(0, some)
    compared = Compared(some, at, rejected.index_select(0, some), kept, options.js_threshold)
    moved = state.history.replace(logits, scan, candidates, compared)
    rejected.index_copy_(0, some, moved)
    mixed &= ~rejected
    state.mixed.index_copy_(0, at, mixed.index_select(0, some))
    state.candidate_ids.index_copy_(0, at, candidates.ids)
    state.candidate_weights.index_copy_(
        0,
        at,
        kept_weights(
            candidates.probabilities,
            options.mix_top_k if state.few_candidates else None,
            options.alpha_scale,
            options.alpha_min,
            options.alpha_max,
        ),
    )
    if state.sticky:
        state.history.clear(at, moved & options.sticky)
        moved &= ~options.sticky
    state.has_history.index_copy_(0, at, kept & ~moved)
    return mixed, rejected


def _advance_blocks(state: CanvasState, now: SlotState, finished: Tensor) -> SlotState:
    """Move requests whose active block is decided on to the next one."""
    end = now.block_end
    after = now._replace(
        block_start=torch.where(finished, end, now.block_start),
        steps_in_block=torch.where(finished, 0, now.steps_in_block),
    )
    if not state.deciding_masks:
        return after
    opened = finished & ~now.options.exclude_mask & (end < now.region_len)
    some = indices_of(opened)
    slots, first = now.slots[some], now.prompt_len[some]
    last = first + after.block_end[some]
    # Masks decided in any block before are open again.
    position = torch.arange(state.tokens.shape[1], device=slots.device)
    reopened = (position >= first[:, None]) & (position < last[:, None]) & opened[some, None]
    reopened &= state.tokens[slots] == state.mask_token_id
    state.decided[slots] &= ~reopened
    return after


def _commit(state: CanvasState, now: SlotState, limits: StepLimits) -> tuple[Tensor, Tensor]:
    """Return the decided prefix. A decided mask, which the official rules allow, is not final
    before the last block is done."""
    longest = state.tokens.shape[1]
    end = now.block_start if limits.whole_blocks else now.block_end
    nth = torch.arange(limits.window, device=end.device)
    position = (now.prompt_len + now.committed)[:, None] + nth
    flat = (now.slots * longest)[:, None] + position.clamp_max(longest - 1)
    tokens = state.tokens.view(-1).index_select(0, flat.view(-1)).view_as(flat)
    closed = state.decided.view(-1).index_select(0, flat.view(-1)).view_as(flat)
    closed &= nth < (end - now.committed)[:, None]
    if state.deciding_masks:
        done = now.block_start >= now.region_len
        closed &= (tokens != state.mask_token_id) | done[:, None]
    return tokens, closed.to(torch.int64).cumprod(1).sum(1)
