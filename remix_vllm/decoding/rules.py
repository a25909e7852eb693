"""The rules of one step on flat rows: which positions are decided, which mix, which are rejected.

A *row* is one undecided position of one request; ``batch`` maps it to its request in this step, and
rows are ordered by (request, position). Every rule reads only rows of the same request, so nothing
about a request depends on its neighbours.
"""

import torch
from torch import Tensor


def accept(
    confidence: Tensor,
    active: Tensor,
    batch: Tensor,
    threshold: Tensor,
    floor: Tensor,
    cap: Tensor,
) -> Tensor:
    """Decide the most confident rows of each request.

    Of the rows above ``threshold`` at most ``cap`` are decided, and at least ``floor`` rows
    whatever their confidence. Ties go to the leftmost position.

    Args:
        confidence: top probability of each row, ``[N]`` float32.
        active: rows that may be decided, ``[N]`` bool.
        batch: request of each row, ascending, ``[N]`` int64.
        threshold, floor, cap: per request, ``[R]``.

    Returns:
        ``[N]`` bool.
    """
    # One integer to sort by. The bits of a probability rise with it; none is negative.
    score = torch.where(active, confidence.view(torch.int32), -1)
    order = torch.argsort((batch << 32) - score, stable=True)
    passes = active & (confidence > threshold.index_select(0, batch))
    tallies = torch.stack([torch.ones_like(batch), passes.to(torch.int64)], dim=1)
    sums = tallies.new_zeros(len(threshold), 2).index_add_(0, batch, tallies)
    rows, passing = sums.unbind(1)
    take = torch.maximum(torch.minimum(passing, cap), floor)
    # Sorting moves no row out of its request.
    starts, take = torch.stack([rows.cumsum(0) - rows, take]).index_select(1, batch).unbind(0)
    first = torch.arange(len(batch), device=batch.device) - starts < take
    return active & torch.empty_like(active).index_copy_(0, order, first)


def kept_weights(
    top_probabilities: Tensor,
    top_k: Tensor | None,
    alpha_scale: Tensor,
    alpha_min: Tensor,
    alpha_max: Tensor,
) -> Tensor:
    """Weights of the mixing candidates: probabilities inside the adaptive nucleus, zero outside.

    The nucleus keeps candidates while their running sum is at most
    ``clamp(alpha_scale * top, alpha_min, alpha_max)``; the one that crosses is dropped (official
    code), the first always stays.

    Args:
        top_probabilities: ``[N, K]`` float32, descending.
        top_k: candidates considered, ``[N]``; None for all ``K``.
        alpha_scale, alpha_min, alpha_max: ``[N]`` float32.

    Returns:
        ``[N, K]`` float32.
    """
    alpha = (alpha_scale * top_probabilities[:, 0]).clamp(min=alpha_min, max=alpha_max)
    # 1.0 and 0.0: comparing to bool and selecting by it take a CPU four times as long.
    kept = top_probabilities.cumsum(-1).le_(alpha[:, None])
    if top_k is not None:
        kept *= torch.arange(kept.shape[1], device=kept.device) < top_k[:, None]
    kept[:, 0] = 1.0
    return kept.mul_(top_probabilities)
