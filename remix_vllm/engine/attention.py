"""What each query attends to, told to the attention backend without masks.

All attention is non-causal; what a query may see is only ever a prefix of its own sequence, given
as a row's ``seq_len``. A block-causal span over several blocks is given as several *virtual rows*
over one block table, one per block, each ending where its block ends: K/V of a forward are written
before they are read, layer by layer, so a block sees the blocks before it in the same forward.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu.attn_utils import build_attn_metadata
from vllm.v1.worker.gpu.input_batch import InputBatch


class AttentionRows(NamedTuple):
    """Rows for the backend: ``Q`` of them for ``R`` requests."""

    query_start_loc: np.ndarray
    """``[Q + 1]`` int32."""
    seq_lens: Tensor
    """Keys each row sees, ``[Q]`` int32."""
    request: np.ndarray | None
    """Request of each row, ``[Q]`` int64; None if they are the requests."""
    max_query_len: int
    max_seq_len: int


def whole_rows(
    input_batch: InputBatch, count: int, extent: Tensor | None, max_seq_len: int
) -> AttentionRows:
    """One row per request, which sees up to ``extent`` (``[R]``) or to the end of its own span.

    Args:
        count: requests, with padding where a full graph is replayed.
    """
    seq_lens = input_batch.seq_lens if extent is None else extent.to(torch.int32)
    return AttentionRows(
        input_batch.query_start_loc_np[: count + 1],
        seq_lens[:count],
        None,
        int(input_batch.num_scheduled_tokens.max()),
        max_seq_len,
    )


def block_rows(
    first: np.ndarray, lengths: np.ndarray, block_length: int, device: torch.device
) -> AttentionRows:
    """One row per block of each span ``[first, first + length)``; blocks are counted from position
    0.

    Args:
        first, lengths: ``[R]`` integers; a span may begin or end inside a block.
    """
    end = first + lengths
    block_first, block_last = first // block_length, (end - 1) // block_length
    rows = (block_last - block_first + 1).astype(np.int64)
    request = np.repeat(np.arange(len(first)), rows)
    nth = np.arange(len(request)) - np.repeat(rows.cumsum() - rows, rows)
    row_end = np.minimum((block_first[request] + nth + 1) * block_length, end[request])
    row_first = np.maximum((block_first[request] + nth) * block_length, first[request])
    query_start_loc = np.zeros(len(request) + 1, dtype=np.int32)
    np.cumsum(row_end - row_first, out=query_start_loc[1:])
    seq_lens = async_tensor_h2d(row_end.astype(np.int32), device)
    return AttentionRows(
        query_start_loc, seq_lens, request, int((row_end - row_first).max()), int(row_end.max())
    )


def metadata(
    rows: AttentionRows,
    num_tokens: int,
    attn_groups: Any,
    block_tables: tuple[Tensor, ...],
    slot_mappings: Tensor,
    kv_cache_config: Any,
    for_capture: bool,
) -> dict[str, Any]:
    """Metadata of every layer for these rows."""
    count = len(rows.query_start_loc) - 1
    device = rows.seq_lens.device
    if rows.request is not None:
        index = async_tensor_h2d(rows.request, device)
        block_tables = tuple(table[index] for table in block_tables)
    query_start_loc = torch.from_numpy(rows.query_start_loc)
    return build_attn_metadata(
        attn_groups=attn_groups,
        num_reqs=count,
        num_tokens=num_tokens,
        query_start_loc_gpu=async_tensor_h2d(query_start_loc, device),
        query_start_loc_cpu=query_start_loc,
        max_query_len=rows.max_query_len,
        seq_lens=rows.seq_lens,
        max_seq_len=rows.max_seq_len,
        block_tables=block_tables,
        slot_mappings=slot_mappings,
        kv_cache_config=kv_cache_config,
        for_cudagraph_capture=for_capture,
        causal=False,
    )
