"""Mixing candidates: the most likely tokens of a row, found in a few of its groups."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.ops.row_scan import RowScan, group_columns
from remix_vllm.ops.top_k import top_k_lowest_index


class Candidates(NamedTuple):
    """The ``K`` most likely tokens of ``N`` rows, equal ones in ascending order of id."""

    ids: Tensor
    """``[N, K]`` int64."""
    probabilities: Tensor
    """Descending, ``[N, K]`` float32."""


def top_candidates(logits: Tensor, scan: RowScan, rows: Tensor, k: int) -> Candidates:
    """Candidates of the ``rows`` ``[N]`` int64 of ``logits`` ``[all rows, V]``.

    The ``k`` groups of largest maximum, lower ones first among equals, hold the ``k`` best tokens:
    each of those groups has one that comes before any token outside of them. No more than
    ``GROUP * k`` logits of a row are looked at.
    """
    size = logits.shape[1]
    group_max = scan.group_max[rows]
    groups = top_k_lowest_index(group_max, min(k, group_max.shape[1]))[1].sort(-1).values
    columns, exists = group_columns(groups, size)
    columns, exists = columns.flatten(1), exists.flatten(1)
    values = logits[rows[:, None], columns].float().masked_fill(~exists, -torch.inf)
    values, place = top_k_lowest_index(values, min(k, size))
    probabilities = (values - scan.logsumexp[rows, None]).exp()
    return Candidates(columns.gather(1, place), probabilities)
