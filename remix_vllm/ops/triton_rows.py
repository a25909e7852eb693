"""Statistics of rows of logits in one pass over each, in Triton.

Only for CUDA tensors, and imported only for them: Triton comes with the CUDA builds of PyTorch. The
kernels have been run by Triton's interpreter and compiled for sm_80 and sm_90; never on a GPU.

A program owns one row, so no result depends on what else is in the batch, and nothing of the size
``[N, V]`` is allocated.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from remix_vllm.ops.row_passes import Compared

TILE = 4096
"""Columns read at once; with 8 warps, two 16-byte loads of bfloat16 per thread."""
WARPS = 8
LOG_EPSILON = tl.constexpr(-15.942384719848633)
"""Natural logarithm of float32 epsilon, below which a probability is not told from another."""


def scan_rows(logits: Tensor, group: int = 128) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Maximum, its lowest id, logsumexp, and the maximum of each group of columns.

    A row with a NaN or +inf has no distribution: its maximum and logsumexp are NaN, its id is some
    id of the vocabulary. A row of -inf has -inf for both.

    Args:
        logits: ``[N, V]``, any floating dtype, rows contiguous.
        group: columns of a group, a power of two of at most ``TILE``; the last may be shorter.

    Returns:
        ``[N]`` float32, ``[N]`` int64, ``[N]`` float32, ``[N, ceil(V / group)]`` float32.
    """
    count, size = logits.shape
    assert size > 0 and _rows_are_contiguous(logits) and group <= TILE
    groups = triton.cdiv(size, group)
    maximum = torch.empty(count, dtype=torch.float32, device=logits.device)
    token = torch.empty(count, dtype=torch.int64, device=logits.device)
    logsumexp = torch.empty_like(maximum)
    group_max = torch.empty(count, groups, dtype=torch.float32, device=logits.device)
    if count:
        _scan_rows[(count,)](
            logits,
            logits.stride(0),
            size,
            maximum,
            token,
            logsumexp,
            group_max,
            groups,
            GROUP=group,
            GROUPS=max(TILE // group, 1),
            num_warps=WARPS,
        )
    return maximum, token, logsumexp, group_max


def compare_rows(
    logits: Tensor,
    logsumexp: Tensor,
    compared: Compared,
    history: Tensor,
    history_logsumexp: Tensor,
) -> Tensor:
    """Jensen-Shannon divergence of rows from the remembered ones, which they then replace.

    Natural logarithm, of ``exp(logits - logsumexp)`` and the same of the history, both clamped
    below at float32 epsilon and not renormalised; ids at or below it in both cost exactly nothing.

    Args:
        logits: ``[M, V]``, any floating dtype, rows contiguous.
        logsumexp: ``[M]`` float32.
        compared: ``N`` rows. Where it is not ``compared`` the divergence is 0 and ``history`` only
            written; where it is not ``kept`` it is 0 and nothing is read or written.
        history: ``[S, V]`` of the dtype of ``logits``.
        history_logsumexp: ``[S]`` float32; +inf stands for a row of zeros.

    Returns:
        ``[N]`` float32; NaN where either row has one.
    """
    size = logits.shape[1]
    assert history.dtype == logits.dtype and history.shape[1] == size
    assert _rows_are_contiguous(logits) and _rows_are_contiguous(history)
    assert logsumexp.is_contiguous() and history_logsumexp.is_contiguous()
    rows, at, has_history, kept = (each.contiguous() for each in compared[:4])
    divergence = torch.empty(len(rows), dtype=torch.float32, device=logits.device)
    if len(rows):
        _compare_rows[(len(rows),)](
            logits,
            logits.stride(0),
            size,
            logsumexp,
            rows,
            history,
            history.stride(0),
            history_logsumexp,
            at,
            has_history,
            kept,
            divergence,
            TILE=TILE,
            num_warps=WARPS,
        )
    return divergence


def _rows_are_contiguous(rows: Tensor) -> bool:
    return rows.shape[1] == 1 or rows.stride(1) == 1


@triton.jit
def _scan_rows(
    logits: tl.tensor,
    stride: tl.tensor,
    size: tl.tensor,
    maximum: tl.tensor,
    token: tl.tensor,
    logsumexp: tl.tensor,
    group_max: tl.tensor,
    groups: tl.tensor,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    logits += row * stride
    column = tl.arange(0, GROUP)[None, :]
    lane = tl.arange(0, GROUPS)
    # One running maximum and sum per lane: a group lies within a warp, so that the loop has no
    # reduction across warps.
    top = tl.full([GROUPS], float("-inf"), tl.float32)
    total = tl.zeros([GROUPS], tl.float32)
    first = tl.zeros([GROUPS], tl.int32)
    for start in range(0, groups, GROUPS):
        group = start + lane
        at = group[:, None] * GROUP + column
        x = tl.load(logits + at, mask=at < size, other=float("-inf")).to(tl.float32)
        here = tl.max(x, 1)
        tl.store(group_max + row * groups + group, here, mask=group < groups)
        # Strictly larger: of equal groups of a lane the first stays.
        first = tl.where(here > top, group, first)
        larger = tl.where(here > top, here, top)
        shift = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), 1)
        top = larger
    best = tl.max(top, 0)
    shift = tl.where(best == float("-inf"), 0.0, best)
    log_total = best + tl.log(tl.sum(total * tl.exp(top - shift), 0))

    at = tl.min(tl.where(top == best, first, groups - 1), 0) * GROUP + tl.arange(0, GROUP)
    x = tl.load(logits + at, mask=at < size, other=float("-inf")).to(tl.float32)
    lowest = tl.min(tl.where(x == best, at, size - 1), 0)
    tl.store(maximum + row, tl.where(log_total == log_total, best, float("nan")))
    tl.store(token + row, lowest.to(tl.int64))
    tl.store(logsumexp + row, log_total)


@triton.jit
def _compare_rows(
    logits: tl.tensor,
    stride: tl.tensor,
    size: tl.tensor,
    logsumexp: tl.tensor,
    rows: tl.tensor,
    history: tl.tensor,
    history_stride: tl.tensor,
    history_logsumexp: tl.tensor,
    at: tl.tensor,
    has_history: tl.tensor,
    kept: tl.tensor,
    divergence: tl.tensor,
    TILE: tl.constexpr,
) -> None:
    nth = tl.program_id(0).to(tl.int64)
    if tl.load(kept + nth) == 0:
        tl.store(divergence + nth, 0.0)
        return
    row = tl.load(rows + nth)
    remembered = tl.load(at + nth)
    log_total = tl.load(logsumexp + row)
    old_log_total = tl.load(history_logsumexp + remembered)
    compared = tl.load(has_history + nth) != 0
    # What is left in a row of zeros, or in no history, is not read: it may be anything.
    zeros = old_log_total == float("inf")
    readable = tl.where(compared & (old_log_total != float("inf")), size, 0)
    old_shift = tl.where(zeros, 0.0, old_log_total)
    logits += row * stride
    history += remembered * history_stride
    sums = tl.zeros([TILE], tl.float32)
    for start in range(0, size, TILE):
        column = start + tl.arange(0, TILE)
        inside = column < size
        x = tl.load(logits + column, mask=inside, other=float("-inf"))
        old = tl.load(history + column, mask=column < readable, other=float("-inf"))
        # The same pointers, so the same threads: none writes what another has yet to read.
        tl.store(history + column, x, mask=inside)
        log_p = tl.maximum(x.to(tl.float32) - log_total, LOG_EPSILON, tl.PropagateNan.ALL)
        log_q = tl.maximum(old.to(tl.float32) - old_shift, LOG_EPSILON, tl.PropagateNan.ALL)
        p = tl.exp(log_p)
        q = tl.exp(log_q)
        log_mean = tl.log((p + q) * 0.5)
        terms = p * (log_p - log_mean) + q * (log_q - log_mean)
        # Both at epsilon: nothing but the rounding of the logarithm, a hundred thousand times.
        negligible = (log_p <= LOG_EPSILON) & (log_q <= LOG_EPSILON)
        sums += tl.where(inside & ~negligible, terms, 0.0)
    # The sum waits for every warp, so none reads the old logsumexp after it is replaced.
    total = tl.sum(sums, 0) * 0.5
    tl.store(divergence + nth, tl.where(compared, total, 0.0))
    tl.store(history_logsumexp + remembered, log_total)
