"""The passes over rows of logits that cost: one exponential or more per logit, or a copy.

Each is written once, in torch. Compiled by TorchInductor it is a single loop without temporaries,
four to five times as fast on a CPU as its operations one after the other
(``benchmarks/step_breakdown.py``); otherwise it runs on a few rows at a time.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

JS_EPSILON = torch.finfo(torch.float32).eps
LOG_JS_EPSILON = math.log(JS_EPSILON)
GROUP = 128
"""Columns per group: a row of 126,464 columns has 988 of them."""
BLOCK_LOGITS = 1 << 20
"""4 MiB of float32, which stay in a CPU's cache from one operation to the next."""


class RowKernels:
    """Passes over rows of ``logits`` ``[M, V]`` and of remembered ``old`` logits ``[S, V]``, any
    floating dtype. ``rows`` and ``at`` ``[N]`` int64 say which.

    Args:
        block: rows for which temporaries of float32 are held at once; None for as many as make
            ``BLOCK_LOGITS``.
        compiled: compile each pass at its first call, for any number of rows.
    """

    def __init__(self, block: int | None = None, compiled: bool = False) -> None:
        self._given_block = block
        self._compiled: dict[Callable[..., Any], Callable[..., Any]] = {}
        if compiled:
            for function in (_group_max, _sum_exp, _overlap, _divergence, _copy):
                self._compiled[function] = torch.compile(function, dynamic=True)

    def group_max(self, logits: Tensor) -> Tensor:
        """Maximum of each group of columns, ``[M, ceil(V / GROUP)]`` float32."""
        groups = logits.shape[1] // GROUP
        function = self._compiled.get(_group_max, _group_max) if len(logits) > 1 else _group_max
        maxima: Tensor = function(logits[:, : groups * GROUP])
        if groups * GROUP == logits.shape[1]:
            return maxima
        last = logits[:, groups * GROUP :].amax(-1, keepdim=True)
        return torch.cat([maxima, last.float()], dim=1)

    def sum_exp(self, logits: Tensor, maximum: Tensor) -> Tensor:
        """Sum of ``exp(logit - maximum)`` of all rows, ``[M]`` float32."""
        rows = torch.arange(len(logits), device=logits.device)
        return self._reduce(_sum_exp, rows, rows, logits, maximum)

    def overlap(
        self, logits: Tensor, logsumexp: Tensor, rows: Tensor, old: Tensor, old_lse: Tensor,
        at: Tensor,
    ) -> Tensor:  # fmt: skip
        """Sum of ``sqrt(p q)``, the Bhattacharyya coefficient, ``[N]`` float32."""
        return self._reduce(_overlap, rows, at, logits, logsumexp, old, old_lse)

    def divergence(
        self, logits: Tensor, logsumexp: Tensor, rows: Tensor, old: Tensor, old_lse: Tensor,
        at: Tensor,
    ) -> Tensor:  # fmt: skip
        """Jensen-Shannon divergence, natural logarithm, ``[N]`` float32.

        As in the official code both distributions are clamped below at float32 epsilon and not
        renormalised, so zeros cost nothing and a row of zeros (``old_lse`` of +inf, a sticky
        rejection) is about ``ln(2)/2`` from any distribution.
        """
        return self._reduce(_divergence, rows, at, logits, logsumexp, old, old_lse)

    def copy(self, logits: Tensor, rows: Tensor, old: Tensor, at: Tensor) -> None:
        """Write ``rows`` to ``old`` at ``at``, which are distinct."""
        if len(rows) > 1 and _copy in self._compiled:
            self._compiled[_copy](rows, at, logits, old)
            return
        block = self._block(logits)
        for start in range(0, len(rows), block):
            part = slice(start, start + block)
            _copy(rows[part], at[part], logits, old)

    def _block(self, logits: Tensor) -> int:
        return self._given_block or max(1, BLOCK_LOGITS // logits.shape[1])

    def _reduce(
        self,
        function: Callable[..., Tensor],
        rows: Tensor,
        at: Tensor,
        logits: Tensor,
        *others: Tensor,
    ) -> Tensor:
        # One row alone would be compiled anew: sizes of 1 are specialised.
        if len(rows) > 1 and function in self._compiled:
            result: Tensor = self._compiled[function](rows, at, logits, *others)
            return result
        block = self._block(logits)
        result = torch.empty(len(rows), dtype=torch.float32, device=rows.device)
        for start in range(0, len(rows), block):
            part = slice(start, start + block)
            result[part] = function(rows[part], at[part], logits, *others)
        return result


def _group_max(logits: Tensor) -> Tensor:
    return logits.unflatten(1, (-1, GROUP)).amax(-1).float()


def _sum_exp(rows: Tensor, at: Tensor, logits: Tensor, maximum: Tensor) -> Tensor:
    return (logits[rows].float() - maximum[rows, None]).exp().sum(-1)


def _overlap(
    rows: Tensor, at: Tensor, logits: Tensor, logsumexp: Tensor, old: Tensor, old_lse: Tensor
) -> Tensor:
    shift = 0.5 * (logsumexp[rows] + old_lse[at])
    return (0.5 * (logits[rows].float() + old[at].float()) - shift[:, None]).exp().sum(-1)


def _divergence(
    rows: Tensor, at: Tensor, logits: Tensor, logsumexp: Tensor, old: Tensor, old_lse: Tensor
) -> Tensor:
    log_p = (logits[rows].float() - logsumexp[rows, None]).clamp_min(LOG_JS_EPSILON)
    log_q = (old[at].float() - old_lse[at, None]).clamp_min(LOG_JS_EPSILON)
    p, q = log_p.exp(), log_q.exp()
    log_mean = ((p + q) * 0.5).log()
    each = p * (log_p - log_mean) + q * (log_q - log_mean)
    # Exactly nothing, whatever the rounding of exp and log.
    return 0.5 * torch.where(log_p == log_q, 0.0, each).sum(-1)


def _copy(rows: Tensor, at: Tensor, logits: Tensor, old: Tensor) -> None:
    old[at] = logits[rows].to(old.dtype)
