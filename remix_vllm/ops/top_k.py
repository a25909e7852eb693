"""Top-k with ties settled by the lower index, which ``torch.topk`` leaves open."""

import torch
from torch import Tensor


def top_k_lowest_index(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` largest entries of each row, equal ones in ascending order of index.

    Args:
        values: ``[N, V]`` float32.
        k: at most ``V``.

    Returns:
        values ``[N, k]`` in descending order and indices ``[N, k]`` int64.
    """
    size = values.shape[1]
    wider = min(k + 1, size)
    top, index = torch.topk(values, wider, dim=-1)
    if wider > k:
        # Which of several entries equal to the last one made it is arbitrary: choose again there.
        tied = (top[:, k - 1] == top[:, k]).nonzero().squeeze(-1)
        top, index = top[:, :k], index[:, :k]
        if len(tied):
            top, index = top.clone(), index.clone()
            top[tied], index[tied] = _stable_top_k(values[tied], k)
    order = index.argsort(dim=-1)
    top, index = top.gather(1, order), index.gather(1, order)
    order = top.argsort(dim=-1, descending=True, stable=True)
    return top.gather(1, order), index.gather(1, order)


def _stable_top_k(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    top, index = torch.sort(values, dim=-1, descending=True, stable=True)
    return top[:, :k], index[:, :k]
