"""Many more requests than may run: all finish, in a bounded time, the urgent ones first."""

from random import Random
from typing import Any

import pytest

from tests.models.mock_run import MockRun
from tests.models.policies import BLOCK4, NONE, Policy, ToyRequest

MAX_NUM_SEQS = 4


def mixed_requests(count: int, seed: int) -> list[ToyRequest]:
    rng = Random(seed)
    return [
        ToyRequest(
            4,
            [rng.randrange(19) for _ in range(rng.choice([2, 9, 30, 44]))],
            rng.choice([1, 8, 30, 50]),
            rng.choice([{}, {"threshold": 0.3}, {"decoding": "low_confidence"}]),
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("policy", [NONE, BLOCK4], ids=lambda p: p.name)
def test_everybody_is_served_before_the_ones_ahead_could_have_run_alone(
    policy: Policy, mock_configs: Any
) -> None:
    budget = 24 if policy.block_causal else 192
    config = mock_configs(policy, async_scheduling=False, max_num_batched_tokens=budget)
    run = MockRun(policy, config)
    requests = mixed_requests(4 * MAX_NUM_SEQS, seed=1)
    for number, request in enumerate(requests):
        run.add(f"r{number:02}", request)
    first_step: dict[str, int] = {}
    steps = 0
    while run.engine.busy:
        running = list(run.engine.scheduler.running)
        output = run.step()
        for name in output.num_scheduled_tokens:
            first_step.setdefault(name, steps)
        # The oldest running request is never passed over; so whoever is, is until it ends.
        if running:
            assert running[0].request_id in output.num_scheduled_tokens
        steps += 1
    run.drain()
    assert sorted(first_step) == sorted(run.requests)
    ahead = 0
    for number, request in enumerate(requests):
        name = f"r{number:02}"
        assert first_step[name] <= ahead
        # Alone it would have taken its forwards and, in parts of the budget, its prompt.
        ahead += run.engine.nfe(name) + len(request.prompt) // 16 + 1


@pytest.mark.parametrize("policy", [NONE, BLOCK4], ids=lambda p: p.name)
def test_the_urgent_request_is_let_in_first(policy: Policy, mock_configs: Any) -> None:
    config = mock_configs(
        policy,
        async_scheduling=False,
        max_num_batched_tokens=384,
        scheduling_policy="priority",
    )
    run = MockRun(policy, config)
    for number, request in enumerate(mixed_requests(3 * MAX_NUM_SEQS, seed=2)):
        run.add(f"r{number:02}", request)
    run.step()
    run.add("urgent", ToyRequest(4, [1, 2, 3], 8, {}, priority=-1))
    let_in = []
    while run.engine.busy:
        let_in += [data.req_id for data in run.step().scheduled_new_reqs]
    assert let_in[0] == "urgent"
    run.drain()
