"""What the rejection rule remembers of each position: its distribution of the step before.

Two forms with one interface. :class:`FullHistory` keeps the row of logits, and decides as the rule
is written. :class:`CompactHistory` keeps the most likely tokens and decides on those; how often it
decides otherwise has not been measured, so it is not the default.
"""

import math
from typing import Protocol

import torch
from torch import Tensor

from remix_vllm.ops.candidates import Candidates
from remix_vllm.ops.row_kernels import JS_EPSILON, RowKernels
from remix_vllm.ops.row_scan import RowScan

LN_2 = math.log(2)


class History(Protocol):
    """Memory of ``rows`` positions."""

    def moved(
        self,
        logits: Tensor,
        scan: RowScan,
        candidates: Candidates,
        rows: Tensor,
        at: Tensor,
        threshold: Tensor,
    ) -> Tensor:
        """Whether each distribution is further than ``threshold`` from the remembered one.

        Args:
            logits: ``[all rows, V]``.
            scan: of all rows.
            candidates: of ``rows``.
            rows: rows of ``logits`` in question, ``[N]`` int64.
            at: where their position is remembered, ``[N]`` int64.
            threshold: Jensen-Shannon divergence, ``[N]`` float32.

        Returns:
            ``[N]`` bool; anything where nothing is remembered.
        """
        ...

    def store(
        self, logits: Tensor, scan: RowScan, candidates: Candidates, rows: Tensor, at: Tensor
    ) -> None:
        """Remember ``rows`` instead."""
        ...

    def clear(self, at: Tensor, which: Tensor) -> None:
        """Remember an all-zero distribution (official code: a sticky rejection) at those of ``at``
        in ``which`` ``[N]`` bool."""
        ...


class FullHistory:
    """The logits themselves, in the model's dtype, in which they are exact.

    Memory: ``rows * V * itemsize`` bytes.
    """

    def __init__(
        self,
        rows: int,
        vocab_size: int,
        dtype: torch.dtype,
        device: torch.device,
        kernels: RowKernels,
    ) -> None:
        self.logits = torch.zeros(rows, vocab_size, dtype=dtype, device=device)
        self.logsumexp = torch.zeros(rows, dtype=torch.float32, device=device)
        self._kernels = kernels
        self._bounds = DivergenceBounds(vocab_size)

    def moved(
        self,
        logits: Tensor,
        scan: RowScan,
        candidates: Candidates,
        rows: Tensor,
        at: Tensor,
        threshold: Tensor,
    ) -> Tensor:
        current = (logits, scan.logsumexp)
        overlap = self._kernels.overlap(*current, rows, self.logits, self.logsumexp, at)
        moved = self._bounds.surely_moved(overlap, threshold)
        unsure = ~moved & ~self._bounds.surely_stayed(overlap, threshold)
        # A row of zeros has no overlap with anything, and yet only half the divergence.
        unsure |= self.logsumexp[at] == torch.inf
        left = unsure.nonzero().squeeze(-1)
        if len(left):
            rows, at = rows[left], at[left]
            divergence = self._kernels.divergence(*current, rows, self.logits, self.logsumexp, at)
            moved[left] = divergence > threshold[left]
        return moved

    def store(
        self, logits: Tensor, scan: RowScan, candidates: Candidates, rows: Tensor, at: Tensor
    ) -> None:
        self._kernels.copy(logits, rows, self.logits, at)
        self.logsumexp[at] = scan.logsumexp[rows]

    def clear(self, at: Tensor, which: Tensor) -> None:
        self.logsumexp[at] = torch.where(which, torch.inf, self.logsumexp[at])


class DivergenceBounds:
    """Bounds on the Jensen-Shannon divergence from the overlap of two distributions.

    With ``h = 1 - overlap`` (the squared Hellinger distance) the divergence without clamping is at
    least ``ln(2) h`` and at most ``h``, element by element. The overlap takes one exponential per
    logit, the divergence two and a logarithm, and few rows fall between.

    Clamping below at epsilon adds at most ``ln(2)/2 * epsilon`` per element, by subadditivity; and
    takes away at most ``epsilon/2 * (ln((epsilon + y) / (2 epsilon)) + 1)`` where the other
    distribution has ``y``, in sum the most for ``y`` spread evenly over half of the elements.
    """

    def __init__(self, vocab_size: int) -> None:
        total = vocab_size * JS_EPSILON
        spread = 2.0 / vocab_size
        rounding = 1e-5
        self.above = 0.5 * LN_2 * total + rounding
        self.below = (
            0.5 * total * (math.log((JS_EPSILON + spread) / (2 * JS_EPSILON)) + 1) + rounding
        )

    def surely_moved(self, overlap: Tensor, threshold: Tensor) -> Tensor:
        return LN_2 * (1.0 - overlap) - self.below > threshold

    def surely_stayed(self, overlap: Tensor, threshold: Tensor) -> Tensor:
        return 1.0 - overlap + self.above <= threshold


class CompactHistory:
    """The ``K`` most likely tokens with their probabilities, and with them the rest's.

    The divergence is that of two distributions over the remembered tokens, the new most likely ones
    and everything else as one. The remembered probability of a token that was not remembered is
    taken as an even share of the rest. Lumping can only lower a divergence, so a rejection may be
    missed; the even share may add one.

    Memory: ``rows * K * 12`` bytes.
    """

    def __init__(self, rows: int, vocab_size: int, top_k: int, device: torch.device) -> None:
        self.ids = torch.zeros(rows, top_k, dtype=torch.int64, device=device)
        self.probabilities = torch.zeros(rows, top_k, dtype=torch.float32, device=device)
        self._others = max(vocab_size - top_k, 1)

    def moved(
        self,
        logits: Tensor,
        scan: RowScan,
        candidates: Candidates,
        rows: Tensor,
        at: Tensor,
        threshold: Tensor,
    ) -> Tensor:
        ids, q = self.ids[at], self.probabilities[at]
        p = (logits[rows[:, None], ids].float() - scan.logsumexp[rows, None]).exp()
        # A row of zeros has no rest either.
        q_rest = torch.where(q[:, 0] > 0, 1.0 - q.sum(-1), 0.0).clamp_min(0.0)
        known = (candidates.ids[:, :, None] == ids[:, None, :]).any(-1)
        p_new = torch.where(known, 0.0, candidates.probabilities)
        q_new = torch.where(known, 0.0, (q_rest / self._others)[:, None])
        p_rest = (1.0 - p.sum(-1) - p_new.sum(-1)).clamp_min(0.0)
        q_rest = (q_rest - q_new.sum(-1)).clamp_min(0.0)
        p = torch.cat([p, p_new, p_rest[:, None]], dim=1)
        q = torch.cat([q, q_new, q_rest[:, None]], dim=1)
        return _divergence(p, q) > threshold

    def store(
        self, logits: Tensor, scan: RowScan, candidates: Candidates, rows: Tensor, at: Tensor
    ) -> None:
        self.ids[at], self.probabilities[at] = candidates

    def clear(self, at: Tensor, which: Tensor) -> None:
        self.probabilities[at] = self.probabilities[at].masked_fill(which[:, None], 0.0)


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    p, q = p.clamp_min(JS_EPSILON), q.clamp_min(JS_EPSILON)
    log_mean = ((p + q) * 0.5).log()
    return 0.5 * (p * (p.log() - log_mean) + q * (q.log() - log_mean)).sum(-1)
