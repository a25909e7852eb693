"""Spans of a step, in numbers and on tensors, and the attention rows made of them."""

import numpy as np
import pytest
import torch

from remix_vllm.config import EngineOptions, KVCache
from remix_vllm.decoding.geometry import Geometry, Span, expected_spans, next_first
from remix_vllm.engine.attention import block_rows
from tests.models.mock_worker import VALID_TOKENS
from tests.models.toy import ToyModel
from tests.models.toy_canvas import toy_canvas


def geometry(policy: KVCache, grid_offset: int = 0, refresh_interval: int = 0) -> Geometry:
    return Geometry(
        policy=policy,
        prompt_len=10,
        region_len=22,
        block_length=8,
        window=8 if policy == "block" else 12,
        grid_offset=grid_offset,
        refresh_interval=refresh_interval,
    )


@pytest.mark.parametrize(
    ("policy", "spans"),
    [
        # (block start, step in block) of the first three, then of the last, shorter block.
        ("none", [(0, 22), (0, 22), (0, 30), (0, 32)]),
        ("prefix", [(0, 22), (10, 22), (0, 30), (26, 32)]),
        ("dual", [(0, 22), (10, 18), (0, 30), (26, 32)]),
    ],
)
def test_spans_of_full_attention_policies(policy: KVCache, spans: list[tuple[int, int]]) -> None:
    steps = [(0, 0), (0, 1), (8, 0), (16, 1)]
    assert [geometry(policy).span(start, step, 0) for start, step in steps] == spans


def test_a_refresh_interval_computes_the_whole_sequence_again() -> None:
    every = geometry("dual", refresh_interval=2)
    assert [every.span(0, step, 0).first for step in range(5)] == [0, 10, 0, 10, 0]


def test_a_block_causal_span_begins_where_final_keys_end() -> None:
    blocks = geometry("block", grid_offset=2)
    assert blocks.block_start(0) == -2
    assert blocks.span(-2, 0, computed=0) == Span(0, 16)
    # The block just decided and the next one, in one forward.
    assert blocks.block_start(6) == 6
    assert blocks.span(6, 0, computed=8) == Span(8, 24)
    assert blocks.span(6, 1, computed=16) == Span(16, 24)
    assert blocks.denoises(Span(8, 24), 6, 0)
    assert not blocks.denoises(Span(8, 16), 6, 0)
    assert blocks.span(14, 1, computed=24) == Span(24, 32)


@pytest.mark.parametrize("policy", ["none", "prefix", "dual", "block"])
def test_worker_and_scheduler_agree_on_spans(policy: KVCache) -> None:
    """The same span from the request's numbers and from the canvas state, at every block and
    step."""
    offset = 2 if policy == "block" else 0
    numbers = geometry(policy, offset, refresh_interval=3 if policy == "dual" else 0)
    engine = EngineOptions.parse({"block_length": 8}, 8)
    options = engine.defaults
    state, _ = toy_canvas(ToyModel(0), engine, 1, 64, VALID_TOKENS, 8)
    slots, every = torch.tensor([0]), numbers.refresh_interval
    for returned in range(22):
        state.add(0, list(range(10 + returned)), 10, 22, options, grid_offset=offset)
        start = numbers.block_start(returned)
        assert int(state.block_start[0]) == start
        for step in range(5):
            state.steps_in_block[0] = step
            span = numbers.span(start, step, computed=10 + start)
            now = state.read(slots)
            expected = expected_spans(
                now, torch.tensor([span.first]), policy, numbers.window, every
            )
            first = next_first(now, torch.tensor([99]), expected, policy, every)
            assert int(first) == span.first
            assert (int(expected.first), int(expected.end)) == span
            assert numbers.denoises(span, start, step)


def test_a_span_over_blocks_becomes_one_row_per_block() -> None:
    rows = block_rows(np.array([0, 8, 12]), np.array([10, 8, 1]), 4, torch.device("cpu"))
    assert rows.query_start_loc.tolist() == [0, 4, 8, 10, 14, 18, 19]
    assert rows.seq_lens.tolist() == [4, 8, 10, 12, 16, 13]
    assert rows.request is not None
    assert rows.request.tolist() == [0, 0, 0, 1, 1, 2]
    assert (rows.max_query_len, rows.max_seq_len) == (4, 16)
