"""Kernel of `vllm/v1/worker/gpu/buffer_utils.py`: the staged writes of a step, applied at once."""

import numpy as np
from torch import Tensor

from .arrays import int32_rows, local_positions


def apply_write(
    output_ptr: Tensor,
    output_stride: Tensor | int,
    write_indices_ptr: Tensor,
    write_starts_ptr: Tensor,
    write_contents_ptr: Tensor,
    write_cu_lens_ptr: Tensor,
    write_group_ids_ptr: Tensor | None,
    BLOCK_SIZE: int,
    MULTI_GROUP: bool,
) -> None:
    """Write ``contents[cu_lens[i - 1] : cu_lens[i]]`` to row ``indices[i]`` from ``starts[i]``.

    The rows are those of ``output`` [rows, stride] or, with ``MULTI_GROUP``, of the int32 table at
    ``output[group_ids[i]]``, whose rows are ``output_stride[group_ids[i]]`` long. The later of two
    writes to one place holds. Indices, starts, cumulative lengths and group ids: [writes].
    """
    rows = write_indices_ptr.numpy().astype(np.int64)
    starts = write_starts_ptr.numpy()
    ends = write_cu_lens_ptr.numpy()
    lengths = np.diff(ends, prepend=0)
    local = local_positions(lengths)
    contents = write_contents_ptr.numpy()[: len(local)]

    if not MULTI_GROUP:
        first = rows * output_stride + starts
        output_ptr.view(-1).numpy()[np.repeat(first, lengths) + local] = contents
        return

    assert isinstance(output_stride, Tensor) and write_group_ids_ptr is not None
    group_ids = write_group_ids_ptr.numpy()
    token_groups = np.repeat(group_ids, lengths)
    token_rows, token_columns = np.repeat(rows, lengths), np.repeat(starts, lengths) + local
    tables = zip(output_ptr.tolist(), output_stride.tolist(), strict=True)
    for group, (address, stride) in enumerate(tables):
        here = token_groups == group
        table = int32_rows(address, int(rows[group_ids == group].max(initial=-1)) + 1, stride)
        table[token_rows[here], token_columns[here]] = contents[here]
