"""The bounds by which a divergence is mostly not computed hold for what the rule is written on."""

import pytest
import torch
from torch import Tensor

from remix_vllm.decoding.official import js_divergence
from remix_vllm.ops.divergence_bounds import DivergenceBounds
from remix_vllm.ops.row_kernels import RowKernels


def rows(size: int, spread: float, change: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    old = spread * torch.randn(40, size, generator=generator)
    return old, old + change * torch.randn(40, size, generator=generator)


@pytest.mark.parametrize("size", [2, 24, 1000, 126_464])
@pytest.mark.parametrize("spread", [0.1, 1.0, 8.0, 30.0])
@pytest.mark.parametrize("change", [0.0, 0.1, 1.0, 20.0])
def test_bounds_and_kernels_against_the_written_rule(
    size: int, spread: float, change: float
) -> None:
    old, new = rows(size, spread, change)
    written = js_divergence(old.softmax(-1), new.softmax(-1))
    lse, old_lse, every = new.logsumexp(-1), old.logsumexp(-1), torch.arange(len(old))
    kernels = RowKernels()
    divergence = kernels.divergence(new, lse, every, old, old_lse, every)
    torch.testing.assert_close(divergence, written, atol=2e-5, rtol=1e-4)
    overlap = kernels.overlap(new, lse, every, old, old_lse, every)
    bounds = DivergenceBounds(size)
    for threshold in torch.tensor([0.0, 0.01, 0.05, 0.1, 0.3, 0.6, 1.0]):
        surely_moved = bounds.surely_moved(overlap, threshold)
        surely_stayed = bounds.surely_stayed(overlap, threshold)
        assert not (surely_moved & surely_stayed).any()
        assert (written[surely_moved] > threshold).all()
        assert (written[surely_stayed] <= threshold + 2e-5).all()
