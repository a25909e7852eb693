"""The two views of memory that the kernels share."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]


def local_positions(lengths: Ints) -> Ints:
    """0, 1, ..., n-1 for each n of ``lengths``, one after the other: [sum(lengths)]."""
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)


def int32_rows(address: int, rows: int, stride: int) -> NDArray[np.int32]:
    """The first ``rows`` rows of the int32 table at ``address``: [rows, stride], not a copy.

    vLLM gives kernels of several KV cache groups one pointer per group instead of tensors.
    """
    memory = (ctypes.c_int32 * (rows * stride)).from_address(address)
    return np.ctypeslib.as_array(memory).reshape(rows, stride)
