"""What the rejection rule remembers of each position: its distribution of the step before.

Two forms with one interface. :class:`FullHistory` keeps the row of logits, and decides as the rule
is written. :class:`CompactHistory` keeps the most likely tokens and decides on those: like the full
one where they hold most of the probability, often otherwise where they do not, so it is not the
default (``benchmarks/history_flips.py``).
"""

from typing import Protocol

import torch
from torch import Tensor

from remix_vllm.ops.candidates import Candidates
from remix_vllm.ops.row_kernels import JS_EPSILON
from remix_vllm.ops.row_passes import Compared, RowPasses
from remix_vllm.ops.row_scan import RowScan


class History(Protocol):
    """Memory of so many positions, each with a place."""

    def replace(
        self, logits: Tensor, scan: RowScan, candidates: Candidates, compared: Compared
    ) -> Tensor:
        """Compare distributions with the remembered ones, then remember them instead.

        Args:
            logits: ``[M, V]``, of which ``compared.rows`` are meant.
            scan: of all ``M``.
            candidates: of ``compared.rows``.

        Returns:
            whether each is further than its threshold from the remembered one, ``[N]`` bool; False
            where it is not compared.
        """
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
        passes: RowPasses,
    ) -> None:
        self.logits = torch.zeros(rows, vocab_size, dtype=dtype, device=device)
        self.logsumexp = torch.zeros(rows, dtype=torch.float32, device=device)
        self._passes = passes

    def replace(
        self, logits: Tensor, scan: RowScan, candidates: Candidates, compared: Compared
    ) -> Tensor:
        return self._passes.replace(logits, scan.logsumexp, compared, self.logits, self.logsumexp)

    def clear(self, at: Tensor, which: Tensor) -> None:
        self.logsumexp[at] = torch.where(which, torch.inf, self.logsumexp[at])


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

    def replace(
        self, logits: Tensor, scan: RowScan, candidates: Candidates, compared: Compared
    ) -> Tensor:
        moved = self._divergence(logits, scan, candidates, compared) > compared.threshold
        self.ids[compared.at], self.probabilities[compared.at] = candidates
        return moved & compared.compared

    def _divergence(
        self, logits: Tensor, scan: RowScan, candidates: Candidates, compared: Compared
    ) -> Tensor:
        rows, at = compared.rows, compared.at
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
        return _divergence(p, q)

    def clear(self, at: Tensor, which: Tensor) -> None:
        self.probabilities[at] = self.probabilities[at].masked_fill(which[:, None], 0.0)


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    p, q = p.clamp_min(JS_EPSILON), q.clamp_min(JS_EPSILON)
    log_mean = ((p + q) * 0.5).log()
    return 0.5 * (p * (p.log() - log_mean) + q * (q.log() - log_mean)).sum(-1)
