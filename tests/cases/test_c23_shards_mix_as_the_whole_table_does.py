"""C23: soft embeddings under a vocabulary-sharded table are those of the whole table.

A softmax over each rank's own part of the vocabulary, or one that subtracts the rank's own maximum,
is right only where the largest logit is. Here one shard has it, far above everything in the other.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from remix_vllm.decoding.rules import kept_weights
from remix_vllm.ops.candidates import top_candidates
from remix_vllm.ops.mixed_embedding import mixed_embedding
from remix_vllm.ops.row_kernels import RowKernels
from remix_vllm.ops.row_passes import TorchPasses

ROWS, VOCABULARY, HIDDEN, TOP_K = 12, 64, 16, 20
PASSES = TorchPasses(VOCABULARY, RowKernels(block=5))


def candidates(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Ids and weights that the rules keep of each row's distribution."""
    count = len(logits)
    scan = PASSES.scan(logits)
    top = top_candidates(logits, scan, torch.arange(count), TOP_K)
    weights = kept_weights(
        top.probabilities,
        torch.full((count,), TOP_K),
        alpha_scale=torch.full((count,), 2.0),
        alpha_min=torch.full((count,), 0.2),
        alpha_max=torch.full((count,), 1.0),
    )
    return top.ids, weights


def mixed_on_shards(table: Tensor, size: int, *inputs: Any) -> Tensor:
    """The sum of what each rank has, its rows being ``size`` of the table, the last ones fewer."""
    shards = [(first, table[first : first + size]) for first in range(0, len(table), size)]
    return torch.stack(
        [mixed_embedding(*inputs, shard, first, PASSES) for first, shard in shards]
    ).sum(0)


@pytest.mark.parametrize("size", [32, 24], ids=["even", "uneven"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_with_the_maximum_on_one_shard(dtype: torch.dtype, size: int) -> None:
    generator = torch.Generator().manual_seed(23)
    logits = torch.randn(ROWS, VOCABULARY, generator=generator)
    # exp(90) is infinite in float32, and exp(-90) is zero.
    logits[0::3, size + 5] += 90
    logits[1::3, 3] += 3
    logits[1::3, size + 2] += 3
    table = torch.randn(VOCABULARY, HIDDEN, generator=generator).to(dtype)
    ids, weights = candidates(logits)
    beta = torch.linspace(0.1, 1.0, ROWS)
    inputs = (ids, weights, beta, VOCABULARY - 1)

    whole = mixed_embedding(*inputs, table, 0, PASSES)
    # The sum is rounded to the table's dtype, each rank's for itself.
    coarse = torch.finfo(dtype).eps * table.float().abs().max().item()
    rounding = 1e-5 if dtype == torch.float32 else coarse
    torch.testing.assert_close(mixed_on_shards(table, size, *inputs), whole, atol=rounding, rtol=0)

    # Worked from the whole distribution, without gather or shards.
    kept = torch.zeros(ROWS, VOCABULARY).scatter(1, ids, weights)
    probability = torch.where(kept > 0, logits.softmax(-1), 0.0)
    rest = 1 - probability.sum(-1, keepdim=True)
    mixture = probability @ table.float() + rest * table[-1].float()
    expected = (1 - beta[:, None]) * table[-1].float() + beta[:, None] * mixture
    rtol = 0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
    torch.testing.assert_close(whole, expected, atol=1e-5, rtol=rtol)
    # Rows whose candidates all lie on one shard, and rows that need both.
    low = (kept[:, :size] > 0).any(1)
    high = (kept[:, size:] > 0).any(1)
    assert (~low & high).any() and (low & high).any()
