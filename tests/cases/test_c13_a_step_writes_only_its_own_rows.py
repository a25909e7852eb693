"""C13: what a step writes belongs to the requests it computes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.mock_run import MockRun, pages_of
from tests.models.mock_worker import MockWorker
from tests.models.policies import BLOCK4, BLOCK8, DUAL, NONE, PAGE, PREFIX, Policy, ToyRequest

REQUESTS = {
    "a": ToyRequest(1, [i % 19 for i in range(41)], 30, {"decoding": "low_confidence"}),
    "b": ToyRequest(1, [i % 17 for i in range(26)], 30, {"threshold": 0.3}),
    "c": ToyRequest(1, [i % 13 for i in range(11)], 30, {"js_threshold": 0.0}),
}
BY_POSITION = ("tokens", "decided", "pinned")
BY_ROW = ("mixed", "candidate_ids", "candidate_weights", "has_history")
HISTORY = ("logits", "logsumexp")
BY_SLOT = ("prompt_len", "region_len", "block_start", "committed", "steps", "steps_in_block", "nfe")


def snapshot(worker: MockWorker) -> dict[str, Tensor]:
    """Everything a step may write, by slot; the pages by page and offset."""
    state = worker.state
    slots = len(state.prompt_len)
    parts = {name: getattr(state, name).clone() for name in (*BY_POSITION, *BY_SLOT)}
    for name in BY_ROW:
        parts[name] = getattr(state, name)[:-1].view(slots, state.history_rows, -1).clone()
    for name in HISTORY:
        parts[name] = getattr(state.history, name)[:-1].view(slots, state.history_rows, -1).clone()
    return parts | {"pages": worker.cache.pages.clone()}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", [NONE, PREFIX, DUAL, BLOCK4, BLOCK8], ids=lambda p: p.name)
def test_slots_and_pages_outside_a_step_are_unchanged_by_it(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    """https://github.com/NVlabs/Fast-dLLM/issues/57: batched replacement in the cache wrote the
    wrong rows."""
    # Not everything fits one step: a long prompt is computed in parts, or waits for the others.
    budget = 2 * policy.settings["block_length"] if policy.block_causal else 96
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=budget)
    run = MockRun(policy, config)
    worker, real_step = run.engine.worker, run.engine.worker._step
    together = set()

    def checked_step(scheduled: dict[str, int]) -> dict[str, list[int]]:
        before = snapshot(worker)
        spans = {n: (worker.slots[n].computed, length) for n, length in scheduled.items()}
        blocks = {
            n: (int(before["block_start"][worker.slots[n].number]), slot_undecided(worker, n))
            for n in scheduled
        }
        returned = real_step(scheduled)
        after = snapshot(worker)
        mine = torch.tensor([worker.slots[name].number for name in scheduled])
        for name in (*BY_POSITION, *BY_ROW, *HISTORY, *BY_SLOT):
            left = before[name].clone()
            left[mine] = after[name][mine]
            assert torch.equal(left, after[name]), name
        for name in scheduled:
            check_positions(worker, name, before, after)
        check_pages(worker, spans, before["pages"], after["pages"])
        if len(blocks) > 1 and len(set(blocks.values())) == len(blocks):
            together.add(len(blocks))
        return returned

    worker._step = checked_step
    for name, request in REQUESTS.items():
        run.add(name, request)
    run.drain()
    assert together


def slot_undecided(worker: MockWorker, name: str) -> int:
    slot = worker.slots[name].number
    region = slice(slot_start := int(worker.state.prompt_len[slot]), slot_start + 30)
    return int((~worker.state.decided[slot, region]).sum())


def check_positions(
    worker: MockWorker, name: str, before: dict[str, Tensor], after: dict[str, Tensor]
) -> None:
    """Only positions of the active block are decided."""
    slot = worker.slots[name].number
    first = int(before["prompt_len"][slot] + before["block_start"][slot])
    block = slice(max(first, 0), first + int(worker.state.options.columns.block_length[slot]))
    for part in BY_POSITION:
        left = before[part][slot].clone()
        left[block] = after[part][slot, block]
        assert torch.equal(left, after[part][slot]), (name, part)


def check_pages(
    worker: MockWorker, spans: dict[str, tuple[int, int]], before: Tensor, after: Tensor
) -> None:
    left = before.clone()
    for name, (first, length) in spans.items():
        at = torch.arange(first, first + length)
        table = torch.tensor(worker.slots[name].pages)
        left[table[at // PAGE], at % PAGE] = after[table[at // PAGE], at % PAGE]
    assert torch.equal(left, after)


def test_running_requests_own_their_writable_pages(mock_configs: Any) -> None:
    """The worker's writes go where the scheduler's tables say: no page that is written is in two
    tables."""
    config = mock_configs(NONE, async_scheduling=False, max_num_batched_tokens=384)
    run = MockRun(NONE, config)
    for name, request in REQUESTS.items():
        run.add(name, request)
    run.step()
    tables = [page for name in REQUESTS for page in pages_of(run.engine, name)]
    assert len(tables) == len(set(tables))
