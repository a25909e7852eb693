"""Input embeddings of mixing positions: a gather and a weighted sum, never a product with the
table."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag


def mixed_embedding(
    ids: Tensor,
    weights: Tensor,
    beta_mix: Tensor,
    mask_embedding: Tensor,
    table: Tensor,
    first_id: int,
    all_reduce: Callable[[Tensor], Tensor],
) -> Tensor:
    """``(1 - beta) e_mask + beta (sum of weight * e_id + rest * e_mask)`` for each position.

    Args:
        ids: candidate ids, ``[N, K]`` int64.
        weights: their kept probabilities, ``[N, K]`` float32; the rest up to 1 goes to the mask.
        beta_mix: ``[N]`` float32.
        mask_embedding: ``[H]``.
        table: this rank's rows of the input embedding, ``[V_local, H]``: ids from ``first_id`` on.
        all_reduce: sums a tensor over the ranks.

    Returns:
        ``[N, H]`` float32.
    """
    local = ids - first_id
    mine = (local >= 0) & (local < table.shape[0])
    local = torch.where(mine, local, 0)
    local_weights = torch.where(mine, weights, 0.0)
    kept = _weighted_sum(local, local_weights, table)
    kept = all_reduce(kept)
    mask = mask_embedding.float()
    rest = 1.0 - weights.sum(-1, keepdim=True).clamp(0.0, 1.0)
    beta = beta_mix[:, None]
    return (1.0 - beta) * mask + beta * (kept + rest * mask)


def _weighted_sum(ids: Tensor, weights: Tensor, table: Tensor) -> Tensor:
    if table.dtype == torch.float32:
        return embedding_bag(ids, table, per_sample_weights=weights, mode="sum")
    return torch.einsum("nk,nkh->nh", weights, table[ids].float())
