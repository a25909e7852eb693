"""Kernels of `vllm/v1/worker/gpu/block_table.py`: where each request's keys and values are.

`R` is the number of requests in the batch, `S` the number of request slots and `G` the number of KV
cache groups. A group's block table is int32 [S, stride], given by its address.
"""

import numpy as np
from torch import Tensor

from .arrays import int32_rows


def gather_block_tables(
    batch_idx_to_req_idx: Tensor,
    src_block_table_ptrs: Tensor,
    dst_block_table_ptrs: Tensor,
    block_table_strides: Tensor,
    num_blocks_ptr: Tensor,
    num_blocks_stride: int,
    num_reqs: int,
    BLOCK_SIZE: int,
) -> None:
    """Copy the block table row of each request's slot to the request's own row.

    ``batch_idx_to_req_idx`` [R], ``num_blocks`` [G, S]; pointers and strides [G].
    """
    slots = batch_idx_to_req_idx.numpy()
    num_blocks = num_blocks_ptr.numpy()[:, slots]
    groups = zip(
        src_block_table_ptrs.tolist(),
        dst_block_table_ptrs.tolist(),
        block_table_strides.tolist(),
        num_blocks,
        strict=True,
    )
    for source, destination, stride, used in groups:
        width = used.max(initial=0)
        rows = int32_rows(source, num_blocks_ptr.shape[1], stride)[slots, :width]
        np.copyto(
            int32_rows(destination, num_reqs, stride)[:, :width],
            rows,
            where=np.arange(width) < used[:, None],
        )


def compute_slot_mappings(
    max_num_tokens: int,
    idx_mapping: Tensor,
    query_start_loc: Tensor,
    pos: Tensor,
    block_table_ptrs: Tensor,
    block_table_strides: Tensor,
    block_sizes: Tensor,
    slot_mapping_enabled: Tensor,
    dcp_sharded: Tensor,
    slot_mappings_ptr: Tensor,
    slot_mappings_stride: int,
    cp_rank: int,
    CP_SIZE: int,
    CP_INTERLEAVE: int,
    PAD_ID: int,
    TRITON_BLOCK_SIZE: int,
) -> None:
    """Write to ``slot_mappings`` [G, max_num_tokens] where each token's key and value go.

    ``PAD_ID`` stands beyond the batch, for a request with slot -1 and in a group without slot
    mapping.
    """
    if CP_SIZE != 1:
        raise NotImplementedError("decode context parallelism without Triton")
    slots = idx_mapping.numpy()
    bounds = query_start_loc.numpy()[: len(slots) + 1]
    num_tokens = bounds[-1]
    token_slots = np.repeat(slots, np.diff(bounds))
    # Slot -1 reads row 0, which exists wherever there is a token, and is blanked afterwards.
    rows = np.maximum(token_slots, 0)
    num_rows = int(rows.max(initial=-1)) + 1
    positions = pos.numpy()[:num_tokens]

    groups = zip(
        slot_mappings_ptr.numpy(),
        block_table_ptrs.tolist(),
        block_table_strides.tolist(),
        block_sizes.tolist(),
        slot_mapping_enabled.tolist(),
        strict=True,
    )
    for mapping, address, stride, block_size, enabled in groups:
        mapping[num_tokens:max_num_tokens] = PAD_ID
        if not enabled:
            mapping[:num_tokens] = PAD_ID
            continue
        table = int32_rows(address, num_rows, stride)
        blocks, offsets = np.divmod(positions, block_size)
        # A block number times the block size may exceed int32.
        mapping[:num_tokens] = table[rows, blocks].astype(np.int64) * block_size + offsets
        mapping[:num_tokens][token_slots < 0] = PAD_ID
