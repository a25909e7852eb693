"""The scheduler step by step: which span each request computes, what it returns, how many pages it
holds.

With ``threshold`` 0 every position of the active block is decided in one step.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.models.mock_engine import MockEngine, mock_config
from tests.models.mock_run import pages_of
from tests.models.policies import PAGE, Policy

ALL_AT_ONCE = {"threshold": 0.0}


@dataclass(frozen=True)
class Row:
    """One engine step. ``spans`` and ``returned`` are per scheduled request, ``pages`` per running
    one."""

    waiting: int
    spans: dict[str, tuple[int, int]]
    returned: dict[str, int]
    pages: dict[str, int]


BLOCK4 = Policy("block4", {"kv_cache": "block", "block_length": 4})
NONE = Policy("none", {"kv_cache": "none", "block_length": 8, "window": 12})
PREFIX = Policy("prefix", {"kv_cache": "prefix", "block_length": 8, "window": 12})
DUAL = Policy("dual", {"kv_cache": "dual", "block_length": 8, "window": 12})

TABLES: list[tuple[str, Policy, int, list[tuple[str, int, int]], dict[str, Any], list[Row]]] = [
    (
        "the prompt's tail is denoised with the first masks; a block's final pass rides along",
        BLOCK4,
        64,
        [("a", 6, 7)],
        ALL_AT_ONCE,
        [
            Row(0, {"a": (0, 8)}, {"a": 2}, {"a": 1}),
            Row(0, {"a": (4, 12)}, {"a": 4}, {"a": 2}),
            Row(0, {"a": (8, 13)}, {"a": 1}, {}),
        ],
    ),
    (
        "a long prompt is computed in whole blocks, and another request joins when there is room",
        BLOCK4,
        24,
        [("a", 30, 2), ("b", 6, 2)],
        ALL_AT_ONCE,
        [
            Row(1, {"a": (0, 24)}, {"a": 0}, {"a": 3}),
            Row(0, {"a": (24, 32), "b": (0, 8)}, {"a": 2, "b": 2}, {}),
        ],
    ),
    (
        "full attention computes everything each step; the canvas moves on with the block",
        NONE,
        64,
        [("a", 5, 18)],
        ALL_AT_ONCE,
        [
            Row(0, {"a": (0, 17)}, {"a": 8}, {"a": 3}),
            Row(0, {"a": (0, 23)}, {"a": 8}, {"a": 3}),
            Row(0, {"a": (0, 23)}, {"a": 2}, {}),
        ],
    ),
    (
        "prefix refreshes at a block's start only",
        PREFIX,
        64,
        [("a", 5, 10)],
        {"decoding": "low_confidence", "steps_per_block": 2},
        [
            Row(0, {"a": (0, 15)}, {}, {"a": 2}),
            Row(0, {"a": (5, 15)}, {"a": 8}, {"a": 2}),
            Row(0, {"a": (0, 15)}, {}, {"a": 2}),
            Row(0, {"a": (13, 15)}, {}, {}),
        ],
    ),
    (
        "dual computes the active block only",
        DUAL,
        64,
        [("a", 5, 10)],
        {"decoding": "low_confidence", "steps_per_block": 2},
        [
            Row(0, {"a": (0, 15)}, {}, {"a": 2}),
            Row(0, {"a": (5, 13)}, {"a": 8}, {"a": 2}),
            Row(0, {"a": (0, 15)}, {}, {"a": 2}),
            Row(0, {"a": (13, 15)}, {}, {}),
        ],
    ),
    (
        "a sequence that does not fit what is left of the budget waits as a whole",
        NONE,
        96,
        [("a", 60, 4), ("b", 40, 4), ("c", 20, 4)],
        ALL_AT_ONCE,
        [
            Row(2, {"a": (0, 64)}, {"a": 4}, {}),
            Row(0, {"b": (0, 44), "c": (0, 24)}, {"b": 4, "c": 4}, {}),
        ],
    ),
]


@pytest.mark.parametrize(
    ("policy", "budget", "requests", "options", "table"),
    [pytest.param(*rest, id=title) for title, *rest in TABLES],
)
def test_steps(
    policy: Policy,
    budget: int,
    requests: list[tuple[str, int, int]],
    options: dict[str, Any],
    table: list[Row],
    tiny_checkpoints: Any,
) -> None:
    config = mock_config(
        tiny_checkpoints(policy.settings["block_length"] if policy.block_causal else None),
        policy.settings,
        block_size=PAGE,
        max_num_batched_tokens=max(budget, 96) if not policy.block_causal else budget,
        enable_prefix_caching=False,
    )
    engine = MockEngine(config, num_pages=32, page_size=PAGE)
    for name, prompt, max_tokens in requests:
        engine.add(name, policy.model(1), [i % 19 for i in range(prompt)], max_tokens, options)
    for number, row in enumerate(table):
        before = {name: len(tokens) for name, tokens in engine.outputs.items()}
        first = {name: slot.computed for name, slot in engine.worker.slots.items()}
        output = engine.step()
        spans = {
            name: (first.get(name, 0), first.get(name, 0) + length)
            for name, length in output.num_scheduled_tokens.items()
        }
        returned = {name: len(engine.outputs[name]) - before[name] for name in row.returned}
        running = [r.request_id for r in engine.scheduler.running]
        pages = {name: len(pages_of(engine, name)) for name in running}
        got = Row(len(engine.scheduler.waiting), spans, returned, pages)
        assert got == row, f"step {number}"
    engine.step()
    assert not engine.busy


def test_forwards_of_a_block_causal_request(tiny_checkpoints: Any) -> None:
    """Two steps a block: no forward of its own writes a block's final keys, nor does the last
    block."""
    config = mock_config(tiny_checkpoints(4), BLOCK4.settings, block_size=PAGE)
    engine = MockEngine(config, num_pages=32, page_size=PAGE)
    options = {"decoding": "low_confidence", "steps_per_block": 2}
    engine.add("a", BLOCK4.model(1), [1, 2, 3, 4, 5, 6, 7, 8], 16, options)
    forwards = 0
    while not engine.requests["a"].is_finished():
        forwards += bool(engine.step().num_scheduled_tokens)
    assert forwards == engine.nfe("a") == 8
