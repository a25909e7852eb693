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
    num_requests = threshold.shape[0]
    score = torch.where(active, confidence, -torch.inf)
    order = torch.sort(score, descending=True, stable=True).indices
    order = order[torch.sort(batch[order], stable=True).indices]
    counts = torch.zeros(num_requests, dtype=torch.int64, device=batch.device)
    ones = torch.ones_like(batch)
    starts = counts.scatter_add(0, batch, ones).cumsum(0)
    starts = torch.cat([starts.new_zeros(1), starts[:-1]])
    rank = torch.empty_like(batch)
    rank[order] = torch.arange(len(batch), device=batch.device) - starts[batch[order]]
    passes = active & (confidence > threshold[batch])
    passing = counts.scatter_add(0, batch, passes.to(torch.int64))
    take = torch.maximum(torch.minimum(passing, cap), floor)
    return active & (rank < take[batch])


def kept_weights(
    top_probabilities: Tensor,
    top_k: Tensor,
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
        top_k: candidates considered, ``[N]``.
        alpha_scale, alpha_min, alpha_max: ``[N]`` float32.

    Returns:
        ``[N, K]`` float32.
    """
    alpha = (alpha_scale * top_probabilities[:, 0]).clamp(min=alpha_min, max=alpha_max)
    kept = top_probabilities.cumsum(-1) <= alpha[:, None]
    kept &= torch.arange(kept.shape[1], device=kept.device) < top_k[:, None]
    kept[:, 0] = True
    return torch.where(kept, top_probabilities, 0.0)
