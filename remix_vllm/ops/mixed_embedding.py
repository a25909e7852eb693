"""Input embeddings of mixing positions: a gather and a weighted sum, never a product with the
table."""

import torch
from torch import Tensor

from remix_vllm.ops.row_passes import RowPasses


def mixed_embedding(
    ids: Tensor,
    weights: Tensor,
    beta_mix: Tensor,
    mask_token_id: int,
    table: Tensor,
    first_id: int,
    passes: RowPasses,
) -> Tensor:
    """``(1 - beta) e_mask + beta (sum of weight * e_id + rest * e_mask)`` for each position.

    With a sharded table this rank's share of the sum, mask included: shares add up to the
    embedding, like those of ordinary tokens, in the same all-reduce.

    Args:
        ids: candidate ids, ``[N, K]`` int64.
        weights: their kept probabilities, ``[N, K]`` float32, zeros last; what they lack to 1 goes
            to the mask.
        beta_mix: ``[N]`` float32.
        table: this rank's rows of the input embedding, ``[V_local, H]``: ids from ``first_id`` on.

    Returns:
        ``[N, H]`` float32.
    """
    rest = 1.0 - weights.sum(-1).clamp(0.0, 1.0)
    mask_weight = (1.0 - beta_mix) + beta_mix * rest
    ids = torch.cat([torch.full_like(ids[:, :1], mask_token_id), ids], dim=1)
    weights = torch.cat([mask_weight[:, None], beta_mix[:, None] * weights], dim=1)
    return passes.weighted_sum(ids, weights, table, first_id)
