"""Top-k with ties settled by the lower index, which ``torch.topk`` leaves open."""

import torch
from torch import Tensor

LOW_32 = (1 << 32) - 1
LOW_13 = (1 << 13) - 1
"""Bits of a float32 that are zero where the value is one of float16 or bfloat16."""


def top_k_lowest_index(values: Tensor, k: int, short: bool = False) -> tuple[Tensor, Tensor]:
    """The ``k`` largest entries of each row, equal ones in ascending order of index.

    Args:
        values: ``[N, V]`` float32.
        k: at most ``V``.
        short: whether all values are ones of float16 or bfloat16, among which ties are the rule.

    Returns:
        values ``[N, k]`` in descending order and indices ``[N, k]`` int64.
    """
    if short and values.shape[1] <= LOW_13 + 1:
        return _by_short_keys(values, k)
    if values.device.type != "cpu":
        # Which rows have ties the host could only learn by waiting.
        return _by_keys(values, k)
    top, index = torch.topk(values, min(k + 1, values.shape[1]), dim=-1)
    tied = (top[:, 1:] == top[:, :-1]).any(-1).nonzero().squeeze(-1)
    top, index = top[:, :k], index[:, :k]
    if len(tied):
        top, index = top.clone(), index.clone()
        top[tied], index[tied] = _by_keys(values[tied], k)
    return top, index


def _by_keys(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Make one integer of value and index, so that there are no ties."""
    ordered = _ordered(values).to(torch.int64)
    index = torch.arange(values.shape[1], device=values.device)
    top = torch.topk((ordered << 32) | (LOW_32 - index), k, dim=-1).values
    index = LOW_32 - (top & LOW_32)
    return values.gather(1, index), index


def _by_short_keys(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same with the index in bits that the value leaves free."""
    index = torch.arange(values.shape[1], dtype=torch.int32, device=values.device)
    top = torch.topk((_ordered(values) & ~LOW_13) | (LOW_13 - index), k, dim=-1).values
    places = (LOW_13 - (top & LOW_13)).to(torch.int64)
    return values.gather(1, places), places


def _ordered(values: Tensor) -> Tensor:
    """Integers in the order of float32 ``values``, int32."""
    # -0.0 equals 0.0, as bits it does not.
    bits = (values + 0.0).view(torch.int32)
    # Negative floats descend where their bits ascend.
    return bits ^ ((bits >> 31) & torch.iinfo(torch.int32).max)
