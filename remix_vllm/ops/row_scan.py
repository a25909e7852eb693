"""First reading of a step's logits: the top of each row and its normaliser.

Everything a threshold decoder needs, in two passes over the logits: maxima of groups of columns,
from which the row's maximum, its place and later the mixing candidates follow, and the sum of
exponentials.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.ops.row_kernels import GROUP, RowKernels


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


def scan_rows(logits: Tensor, kernels: RowKernels) -> RowScan:
    """Scan each row of ``logits`` ``[N, V]``, any floating dtype and row stride."""
    group_max = kernels.group_max(logits)
    maximum = group_max.amax(-1)
    total = kernels.sum_exp(logits, maximum)
    token = _first_of_maximum(logits, group_max, maximum)
    return RowScan(total.reciprocal(), token, maximum + total.log(), group_max)


def _first_of_maximum(logits: Tensor, group_max: Tensor, maximum: Tensor) -> Tensor:
    size, count = logits.shape[1], group_max.shape[1]
    places = torch.arange(count, device=logits.device)
    group = torch.where(group_max == maximum[:, None], places, count).amin(-1)
    # A row of NaN equals nothing; its id stays inside the vocabulary.
    columns = group.clamp_max(count - 1)[:, None] * GROUP
    columns = columns + torch.arange(GROUP, device=logits.device)
    exists = columns < size
    columns = columns.clamp_max(size - 1)
    equal = (logits.gather(1, columns).float() == maximum[:, None]) & exists
    return torch.where(equal, columns, size - 1).amin(-1)
