"""First reading of a step's logits: the top of each row and its normaliser.

Everything a threshold decoder needs, in two passes over the logits: maxima of groups of columns,
from which the row's maximum, its place and later the mixing candidates follow, and the sum of
exponentials.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.ops.row_reductions import RowReductions

GROUP = 128
"""Columns per group: a row of 126,464 columns has 988 of them."""


class RowScan(NamedTuple):
    """The top of ``N`` rows."""

    confidence: Tensor
    """Top probability, ``[N]`` float32."""
    token: Tensor
    """Its id, the lowest of equals, ``[N]`` int64."""
    logsumexp: Tensor
    """Log of the sum of exponentials, ``[N]`` float32; not finite where the row is corrupt (NaN,
    +inf, or nothing above -inf)."""
    group_max: Tensor
    """Maximum of each group of columns, ``[N, ceil(V / GROUP)]`` float32."""


def scan_rows(logits: Tensor, reductions: RowReductions, block: int) -> RowScan:
    """Scan each row.

    Args:
        logits: ``[N, V]``, any floating dtype and row stride.
        block: rows in float32 at once.
    """
    group_max = _group_max(logits)
    maximum = group_max.amax(-1)
    total = torch.empty_like(maximum)
    for start in range(0, len(logits), block):
        rows = slice(start, start + block)
        total[rows] = reductions.sum_exp(logits[rows], maximum[rows])
    token = _first_of_maximum(logits, group_max, maximum)
    return RowScan(total.reciprocal(), token, maximum + total.log(), group_max)


def group_columns(groups: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Columns of groups, and which of them exist: ``[..., GROUP]`` int64 and bool. Those beyond
    the row are given as its last."""
    columns = groups[..., None] * GROUP + torch.arange(GROUP, device=groups.device)
    return columns.clamp_max(size - 1), columns < size


def _group_max(logits: Tensor) -> Tensor:
    whole = logits.shape[1] // GROUP * GROUP
    groups = logits[:, :whole].unflatten(1, (-1, GROUP)).amax(-1)
    if whole < logits.shape[1]:
        groups = torch.cat([groups, logits[:, whole:].amax(-1, keepdim=True)], dim=1)
    return groups.float()


def _first_of_maximum(logits: Tensor, group_max: Tensor, maximum: Tensor) -> Tensor:
    size = logits.shape[1]
    count = group_max.shape[1]
    places = torch.arange(count, device=logits.device)
    group = torch.where(group_max == maximum[:, None], places, count).amin(-1)
    # A row of NaN equals nothing; its id stays inside the vocabulary.
    columns, exists = group_columns(group.clamp_max(count - 1), size)
    equal = (logits.gather(1, columns).float() == maximum[:, None]) & exists
    return torch.where(equal, columns, size - 1).amin(-1)
