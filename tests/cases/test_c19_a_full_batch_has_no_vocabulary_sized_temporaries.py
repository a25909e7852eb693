"""C19: a full batch of full canvases needs no float32 tensor of all rows by the vocabulary.

https://github.com/vllm-project/vllm/issues/50699: the first full batch died of several of them.
"""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from remix_vllm.decoding.history import FullHistory
from remix_vllm.ops.candidates import top_candidates
from remix_vllm.ops.row_kernels import BLOCK_LOGITS, GROUP, RowKernels
from remix_vllm.ops.row_passes import Compared, TorchPasses

ROWS, VOCABULARY, TOP_K = 64, 40_001, 50


class LargestTensor(TorchDispatchMode):
    """Notes the bytes of the largest storage that an operation has made."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.bytes = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in self.known:
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return result


def statistics(
    logits: Tensor, history: FullHistory, passes: TorchPasses
) -> tuple[Tensor, Tensor, Tensor]:
    """What a step of rows that all have a history reads off its logits."""
    rows = torch.arange(len(logits))
    scan = passes.scan(logits)
    candidates = top_candidates(logits, scan, rows, TOP_K)
    threshold = torch.full((len(logits),), 0.1)
    every = torch.ones(len(logits), dtype=torch.bool)
    compared = Compared(rows, rows, every, every, threshold)
    moved = history.replace(logits, scan, candidates, compared)
    return scan.logsumexp, candidates.ids, moved


def full_history(old: Tensor, passes: TorchPasses) -> FullHistory:
    history = FullHistory(len(old), old.shape[1], old.dtype, old.device, passes)
    history.logits.copy_(old)
    history.logsumexp.copy_(old.float().logsumexp(-1))
    return history


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_temporaries_are_bounded_and_change_nothing(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(19)
    old = 3 * torch.randn(ROWS, VOCABULARY, generator=generator)
    # From hardly moved to far from it.
    change = torch.linspace(0, 4, ROWS)[:, None]
    logits = (old + change * torch.randn(ROWS, VOCABULARY, generator=generator)).to(dtype)
    old = old.to(dtype)
    results = []
    for block in (3, ROWS):
        passes = TorchPasses(VOCABULARY, RowKernels(block))
        history = full_history(old, passes)
        with LargestTensor(logits, history.logits) as largest:
            results.append(statistics(logits, history, passes))
        assert torch.equal(history.logits, logits)
        if block == 3:
            candidates = ROWS * TOP_K * GROUP * torch.int64.itemsize
            assert largest.bytes <= max(3 * VOCABULARY * 4, candidates)
            assert largest.bytes < logits.numel() * 4
    few, all_at_once = results
    torch.testing.assert_close(few[0], all_at_once[0])
    assert torch.equal(few[1], all_at_once[1])
    assert torch.equal(few[2], all_at_once[2])
    assert 0 < int(few[2].sum()) < ROWS
    p = logits.float().softmax(-1)
    values, _ = p.topk(TOP_K, dim=-1)
    torch.testing.assert_close(p.gather(1, few[1]), values)


def test_the_default_block_is_bounded_by_the_vocabulary() -> None:
    kernels = RowKernels()
    assert kernels._block(torch.empty(1, 126_464)) * 126_464 <= BLOCK_LOGITS
    assert kernels._block(torch.empty(1, 2 * BLOCK_LOGITS)) == 1
