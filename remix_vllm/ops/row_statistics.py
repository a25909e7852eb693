"""Everything a step reads off its logits, row block by row block.

No float32 tensor of all rows by the vocabulary is ever made: temporaries are ``block * V`` floats,
a few of them at once, whatever the batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.decoding.rules import js_divergence
from remix_vllm.ops.top_k import top_k_lowest_index


class RowStatistics(NamedTuple):
    """Statistics of ``N`` rows."""

    confidence: Tensor
    """Top probability, ``[N]`` float32."""
    token: Tensor
    """Its id, the lowest of equals, ``[N]`` int64."""
    divergence: Tensor
    """Jensen-Shannon divergence from the remembered distribution, 0 without one, ``[N]``
    float32."""
    top_probability: Tensor
    """Most likely tokens' probabilities, descending, ``[N, K]`` float32; zeros where not asked
    for."""
    top_id: Tensor
    """Their ids, ``[N, K]`` int64."""


def row_statistics(
    logits: Tensor,
    forbidden: Tensor,
    exclude: Tensor,
    remembers: Tensor,
    history_rows: Tensor,
    history: Tensor,
    has_history: Tensor,
    top_k: int,
    block: int,
) -> RowStatistics:
    """Statistics of each row; the distributions of rows that remember replace their history.

    Args:
        logits: ``[N, V]``, any floating dtype.
        forbidden: ids never predicted, ``[V]`` bool.
        exclude: rows the ban applies to, ``[N]`` bool. Such a row's distribution is over the
            allowed ids alone.
        remembers: rows with a history, ``[N]`` bool; the others need neither divergence nor
            candidates.
        history_rows: row of ``history`` of each, ``[N]`` int64.
        history: ``[rows, V]`` float32, written.
        has_history: ``[rows]`` bool, read; the caller updates it.
        top_k: candidates per row.
        block: rows handled at once.
    """
    count, size = logits.shape
    device = logits.device
    top_k = min(top_k, size)
    confidence = torch.empty(count, dtype=torch.float32, device=device)
    token = torch.empty(count, dtype=torch.int64, device=device)
    divergence = torch.zeros(count, dtype=torch.float32, device=device)
    top_probability = torch.zeros(count, top_k, dtype=torch.float32, device=device)
    top_id = torch.zeros(count, top_k, dtype=torch.int64, device=device)
    ids = torch.arange(size, device=device)
    for start in range(0, count, block):
        rows = slice(start, min(start + block, count))
        masked = logits[rows].float().masked_fill(exclude[rows, None] & forbidden, -torch.inf)
        p = masked.softmax(-1)
        confidence[rows] = p.amax(-1)
        # By logits: two that differ may round to one probability.
        token[rows] = torch.where(masked == masked.amax(-1, keepdim=True), ids, size).amin(-1)
        # A row of NaN equals nothing; keep its id inside the vocabulary.
        token[rows].clamp_(max=size - 1)
        remembered = remembers[rows].nonzero().squeeze(-1)
        if not len(remembered):
            continue
        p = p[remembered]
        at = history_rows[rows][remembered]
        into = remembered + start
        old = has_history[at]
        divergence[into] = torch.where(old, js_divergence(p, history[at]), 0.0)
        top_probability[into], top_id[into] = top_k_lowest_index(p, top_k)
        history[at] = p
    return RowStatistics(confidence, token, divergence, top_probability, top_id)
