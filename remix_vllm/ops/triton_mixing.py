"""Weighted sums of rows of the embedding table, in Triton.

As :mod:`remix_vllm.ops.triton_rows`: only for CUDA tensors, and so far run by Triton's interpreter
and compiled, never on a GPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 1024
"""Columns summed at once, at most."""


def mix_rows(ids: Tensor, weights: Tensor, table: Tensor, first_id: int) -> Tensor:
    """Weighted sum of each position's candidates, as far as this rank has them.

    Args:
        ids: ``[N, K]`` int64.
        weights: ``[N, K]`` float32; rows of weight 0 are not read.
        table: embeddings of the ids from ``first_id`` on, ``[V_local, H]``, any floating dtype.
        first_id: the first of them; other ranks have the ids outside.

    Returns:
        ``[N, H]`` float32, summed in the order of ``K``.
    """
    count, candidates = ids.shape
    local_size, width = table.shape
    for rows in (ids, weights, table):
        assert rows.shape[1] == 1 or rows.stride(1) == 1
    mixed = torch.empty(count, width, dtype=torch.float32, device=table.device)
    tile = min(TILE, triton.next_power_of_2(width))
    if count:
        _mix_rows[(count, triton.cdiv(width, tile))](
            ids,
            ids.stride(0),
            weights,
            weights.stride(0),
            candidates,
            table,
            table.stride(0),
            local_size,
            first_id,
            mixed,
            width,
            CANDIDATES=triton.next_power_of_2(candidates),
            TILE=tile,
            num_warps=4,
        )
    return mixed


@triton.jit
def _mix_rows(
    ids: tl.tensor,
    ids_stride: tl.tensor,
    weights: tl.tensor,
    weights_stride: tl.tensor,
    candidates: tl.tensor,
    table: tl.tensor,
    table_stride: tl.tensor,
    local_size: tl.tensor,
    first_id: tl.tensor,
    mixed: tl.tensor,
    width: tl.tensor,
    CANDIDATES: tl.constexpr,
    TILE: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    ids += row * ids_stride
    weights += row * weights_stride
    nth = tl.arange(0, CANDIDATES)
    # Kept candidates come first: most positions have a few of them, whatever K is.
    used = tl.load(weights + nth, mask=nth < candidates, other=0.0) != 0.0
    length = tl.max(tl.where(used, nth + 1, 0), 0)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    sums = tl.zeros([TILE], tl.float32)
    for k in range(length):
        weight = tl.load(weights + k)
        local = tl.load(ids + k) - first_id
        mine = (weight != 0.0) & (local >= 0) & (local < local_size)
        readable = tl.where(mine, width, 0)
        part = tl.load(table + local * table_stride + column, mask=column < readable, other=0.0)
        sums += tl.where(mine, weight, 0.0) * part.to(tl.float32)
    tl.store(mixed + row * width + column, sums, mask=column < width)
