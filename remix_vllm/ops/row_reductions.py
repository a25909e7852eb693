"""The reductions over the vocabulary that cost: one exponential or more per logit.

Written once in torch. Compiled by TorchInductor each is a single pass without temporaries, three to
four times as fast on a CPU as its torch operations one after the other
(``benchmarks/step_breakdown.py``). An engine that runs eager does not compile them either.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

JS_EPSILON = torch.finfo(torch.float32).eps
LOG_JS_EPSILON = math.log(JS_EPSILON)


class RowReductions(NamedTuple):
    """Functions of rows ``[N, V]`` of logits, any floating dtype, to ``[N]`` float32."""

    sum_exp: Callable[[Tensor, Tensor], Tensor]
    """Sum of ``exp(logit - maximum)``."""
    overlap: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """Sum of ``sqrt(p q)`` (the Bhattacharyya coefficient) of two rows, each given as logits and
    logsumexp."""
    divergence: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """Their Jensen-Shannon divergence, as :func:`js_divergence`."""


def sum_exp(logits: Tensor, maximum: Tensor) -> Tensor:
    return (logits.float() - maximum[:, None]).exp().sum(-1)


def overlap(logits: Tensor, logsumexp: Tensor, old: Tensor, old_logsumexp: Tensor) -> Tensor:
    shift = 0.5 * (logsumexp + old_logsumexp)
    return (0.5 * (logits.float() + old.float()) - shift[:, None]).exp().sum(-1)


def js_divergence(logits: Tensor, logsumexp: Tensor, old: Tensor, old_logsumexp: Tensor) -> Tensor:
    """Jensen-Shannon divergence of the distributions of two rows of logits, natural logarithm.

    As in the official code both are clamped below at float32 epsilon and not renormalised, so zeros
    cost nothing and a row of zeros (``old_logsumexp`` of +inf, a sticky rejection) is about
    ``ln(2)/2`` from any distribution.
    """
    log_p = (logits.float() - logsumexp[:, None]).clamp_min(LOG_JS_EPSILON)
    log_q = (old.float() - old_logsumexp[:, None]).clamp_min(LOG_JS_EPSILON)
    p, q = log_p.exp(), log_q.exp()
    log_mean = ((p + q) * 0.5).log()
    each = p * (log_p - log_mean) + q * (log_q - log_mean)
    # Exactly nothing, whatever the rounding of exp and log.
    return 0.5 * torch.where(log_p == log_q, 0.0, each).sum(-1)


EAGER = RowReductions(sum_exp, overlap, js_divergence)


def compiled_reductions() -> RowReductions:
    """The same, compiled at their first call; the row count stays free."""
    compile_free = torch.compile(dynamic=True)
    return RowReductions(*(compile_free(f) for f in EAGER))
