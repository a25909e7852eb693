"""Mixing candidates: the most likely tokens of a row, found in a few of its groups."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.ops.row_kernels import GROUP
from remix_vllm.ops.row_scan import RowScan
from remix_vllm.ops.top_k import top_k_lowest_index


class Candidates(NamedTuple):
    """The ``K`` most likely tokens of ``N`` rows, equal ones in ascending order of id."""

    ids: Tensor
    """``[N, K]`` int64."""
    probabilities: Tensor
    """Descending, ``[N, K]`` float32."""


def top_candidates(logits: Tensor, scan: RowScan, rows: Tensor, k: int) -> Candidates:
    """Candidates of the ``rows`` ``[N]`` int64 of ``logits`` ``[M, V]``.

    The ``k`` groups of largest maximum, lower ones first among equals, hold the ``k`` best tokens:
    each of those groups has one that comes before any token outside of them. No more than
    ``GROUP * k`` logits of a row are looked at.
    """
    size, short = logits.shape[1], logits.itemsize == 2
    if size <= GROUP * k:
        values, ids = top_k_lowest_index(logits[rows].float(), min(k, size), short)
    else:
        groups = top_k_lowest_index(scan.group_max[rows], k, short)[1].sort(-1).values
        values, place = top_k_lowest_index(_in_groups(logits, rows, groups), k, short)
        ids = groups.gather(1, place // GROUP) * GROUP + place % GROUP
    return Candidates(ids, (values - scan.logsumexp[rows, None]).exp())


def _in_groups(logits: Tensor, rows: Tensor, groups: Tensor) -> Tensor:
    """Logits of ``groups`` ``[N, k]`` of each row, ``[N, k * GROUP]`` float32; -inf beyond V."""
    whole = logits.shape[1] // GROUP
    chunks = logits[:, : whole * GROUP].unflatten(1, (-1, GROUP))
    values = chunks[rows[:, None], groups.clamp_max(whole - 1)].float()
    if whole * GROUP < logits.shape[1]:
        rest = logits[:, whole * GROUP :][rows].float()
        last = torch.full_like(values[:, 0], -torch.inf)
        last[:, : rest.shape[1]] = rest
        values = torch.where((groups == whole)[:, :, None], last[:, None], values)
    return values.flatten(1)
