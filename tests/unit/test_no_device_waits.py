"""On a GPU no operation of a step makes the host wait for the device.

Without a GPU: the tensors are those of the device `meta`, which have shapes and no values. Whatever
the host would have to read back (`item`, `tolist`, `nonzero`, a mask as an index) cannot be
answered and raises. Copies to the device are not seen here.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.geometry import expected_spans, next_first
from remix_vllm.decoding.history import CompactHistory, FullHistory, History
from remix_vllm.decoding.rows import flatten, select_rows
from remix_vllm.decoding.state import CanvasState, num_places
from remix_vllm.decoding.step import StepLimits, decode
from remix_vllm.ops.row_kernels import GROUP
from remix_vllm.ops.row_passes import Compared
from remix_vllm.ops.row_scan import RowScan

SLOTS, LENGTH, VOCABULARY, BLOCK, TOP_K = 4, 64, 1000, 8, 5
REQUESTS, SPAN = 2, 16


class Shapes:
    """Passes with the shapes of the real ones, whose kernels take no fake tensors."""

    def scan(self, logits: Tensor) -> RowScan:
        count, size = logits.shape
        numbers = logits.new_empty(count, dtype=torch.float32)
        groups = logits.new_empty(count, -(-size // GROUP), dtype=torch.float32)
        return RowScan(numbers, numbers.to(torch.int64), numbers.clone(), groups)

    def replace(
        self, logits: Tensor, logsumexp: Tensor, compared: Compared, old: Tensor, old_lse: Tensor
    ) -> Tensor:
        return torch.empty_like(compared.compared)

    def weighted_sum(self, ids: Tensor, weights: Tensor, table: Tensor, first_id: int) -> Tensor:
        return weights.new_empty(len(ids), table.shape[1])


def full(rows: int, device: torch.device) -> History:
    return FullHistory(rows, VOCABULARY, torch.bfloat16, device, Shapes())


def compact(rows: int, device: torch.device) -> History:
    return CompactHistory(rows, VOCABULARY, TOP_K, device)


def step(options: EngineOptions, make_history: Callable[[int, torch.device], History]) -> None:
    device = torch.device("meta")
    state = CanvasState(
        num_slots=SLOTS,
        history=make_history(num_places(SLOTS, options.history_rows), device),
        max_model_len=LENGTH,
        history_rows=options.history_rows,
        vocab_size=VOCABULARY,
        mask_token_id=VOCABULARY - 1,
        top_k=TOP_K,
        device=device,
    )
    state.deciding_masks.add(1)
    state.across_blocks.add(1)
    state.resumed.add(1)
    state.few_candidates.add(1)
    state.sticky.add(1)
    forbidden = torch.tensor([VOCABULARY - 1], device=device)
    limits = StepLimits(forbidden, options.window, False, Shapes())
    slots, first = (torch.empty(REQUESTS, dtype=torch.int64, device=device) for _ in range(2))
    lengths, counts = torch.empty_like(slots), torch.empty_like(slots)
    tokens = flatten(state, slots, first, lengths, REQUESTS * SPAN)
    policy, every = options.kv_cache, options.refresh_interval
    before = state.read(slots)
    expected = expected_spans(before, first, policy, options.window, every)
    rows = select_rows(state, before, tokens, expected, counts, REQUESTS * BLOCK)
    logits = torch.empty(REQUESTS * BLOCK, VOCABULARY, dtype=torch.bfloat16, device=device)
    committed = decode(state, before, rows, logits, limits)
    assert committed.tokens.shape == (REQUESTS, options.window)
    following = next_first(committed.after, first + lengths, expected, policy, every)
    assert following.shape == (REQUESTS,)


@pytest.mark.parametrize("make_history", [full, compact])
@pytest.mark.parametrize("kv_cache", ["none", "prefix", "dual", "block"])
def test_a_step_reads_nothing_back(
    kv_cache: str, make_history: Callable[[int, torch.device], History]
) -> None:
    settings: dict[str, Any] = {"kv_cache": kv_cache, "block_length": BLOCK}
    options = EngineOptions.parse(settings, BLOCK, block_causal=kv_cache == "block")
    step(options, make_history)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x.nonzero(),
        lambda x: x.any().item(),
        lambda x: x.tolist(),
        lambda x: x[x],
        lambda x: bool(x.any()),
    ],
)
def test_reading_back_is_seen(read: Callable[[Tensor], Any]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        read(torch.zeros(3, dtype=torch.bool, device="meta"))
