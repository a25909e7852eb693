"""The mixing candidates of a row are the first of its tokens, sorted; equal ones by their id."""

import pytest
import torch
from torch import Tensor

from remix_vllm.ops.candidates import top_candidates
from remix_vllm.ops.row_kernels import RowKernels
from remix_vllm.ops.row_passes import TorchPasses
from remix_vllm.ops.top_k import top_k_lowest_index

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
ROWS, TOP_K = 40, 50


def rows_with_ties(size: int, dtype: torch.dtype) -> Tensor:
    """Rows in which more and more values are equal, positive, negative and both."""
    generator = torch.Generator().manual_seed(size)
    rows = torch.randn(ROWS, size, generator=generator)
    rows *= torch.logspace(-3, 2, ROWS)[:, None]
    rows += torch.tensor([0.0, 5.0, -5.0, 0.0])[torch.arange(ROWS) % 4, None]
    rows[::5] = rows[::5].round()
    rows[1, ::2] = -0.0
    rows[1, 1::2] = 0.0
    rows[2] = -torch.inf
    rows[2, size // 2 :] = -3.0
    rows[6] = rows[6].clamp_max(rows[6].median())
    return rows.to(dtype)


def sorted_first(rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    values, index = (rows.float() + 0.0).sort(dim=-1, descending=True, stable=True)
    return values[:, :k], index[:, :k]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [50, 51, 988, 6400, 8192, 8193])
def test_top_k(size: int, dtype: torch.dtype) -> None:
    rows = rows_with_ties(size, dtype)
    values, index = top_k_lowest_index(rows.float(), TOP_K, short=dtype.itemsize == 2)
    expected, places = sorted_first(rows, TOP_K)
    assert torch.equal(index, places)
    assert torch.equal(values, expected)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", [200, 12_800, 12_901])
def test_candidates(size: int, dtype: torch.dtype, compiled: bool) -> None:
    logits = rows_with_ties(size, dtype)
    scan = TorchPasses(size, RowKernels(compiled=compiled)).scan(logits)
    rows = torch.arange(ROWS).flip(0)
    found = top_candidates(logits, scan, rows, TOP_K)
    assert torch.equal(found.ids, sorted_first(logits[rows], TOP_K)[1])
    assert torch.equal(scan.token, sorted_first(logits, 1)[1][:, 0])
    exact = logits[rows].float().softmax(-1).gather(1, found.ids)
    torch.testing.assert_close(found.probabilities, exact, atol=1e-6, rtol=1e-4)
