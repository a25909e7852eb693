"""C15: a preempted request comes back as if it had never run further than what it returned."""

from typing import Any

import pytest

from tests.models.mock_run import MockRun
from tests.models.policies import POLICIES, Policy, ToyRequest

REQUESTS = {
    name: ToyRequest(4, [(i * step) % 19 for i in range(9 + step)], 45, options)
    for name, step, options in [
        ("a", 1, {}),
        ("b", 2, {"decoding": "low_confidence"}),
        ("c", 3, {"threshold": 0.3}),
        ("d", 5, {"js_threshold": 0.0}),
    ]
}


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_preempted_in_the_middle_of_a_block_it_returns_the_same(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    """https://github.com/vllm-project/vllm-metal/issues/488: pages for two of four requests."""
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=384)
    run = MockRun(policy, config, num_pages=16)
    for name, request in REQUESTS.items():
        run.add(name, request)
    scheduler, worker = run.engine.scheduler, run.engine.worker
    preempt, in_block = scheduler._preempt_request, []

    def watched(request: Any, *args: Any, **kwargs: Any) -> None:
        progress = scheduler.progress[request.request_id]
        in_block.append(request.num_output_tokens - progress.block_start)
        preempt(request, *args, **kwargs)

    scheduler._preempt_request = watched
    removed = []
    remove = worker._remove

    def checked_remove(name: str) -> None:
        slot = worker.slots.get(name)
        remove(name)
        if slot is not None:
            rows = slice(
                slot.number * worker.state.history_rows,
                (slot.number + 1) * worker.state.history_rows,
            )
            assert not worker.state.has_history[rows].any()
            assert not worker.state.mixed[rows].any()
            removed.append(name)

    worker._remove = checked_remove
    # Draining compares every output and NFE with the oracle's, which knows of no preemption.
    run.drain()
    assert run.preemptions == len(in_block) > 0
    assert len(removed) > len(REQUESTS)
