"""Any interleaving of arrivals, aborts and steps, found by hypothesis, under every policy."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.models.mock_run import MockRun
from tests.models.policies import POLICIES, Policy, ToyRequest

OPTIONS = st.sampled_from(
    [{}, {"threshold": 0.3}, {"decoding": "low_confidence"}, {"max_nfe": 9}, {"js_threshold": 0.0}]
)
BEGINNING = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3] * 2
"""Half of the prompts begin with a part of this, for the prefix cache."""


class Interleaving(RuleBasedStateMachine):
    """One engine with pages for two or three of its four running requests."""

    def __init__(self, policy: Policy, config: Any) -> None:
        super().__init__()
        self.run = MockRun(policy, config, num_pages=14)
        self.count = 0

    @rule(
        shared=st.sampled_from([0, 0, 7, 16, 31]),
        prompt=st.lists(st.integers(0, 18), min_size=1, max_size=12),
        max_tokens=st.sampled_from([1, 5, 16, 40]),
        options=OPTIONS,
    )
    def arrive(
        self, shared: int, prompt: list[int], max_tokens: int, options: dict[str, Any]
    ) -> None:
        request = ToyRequest(4, BEGINNING[:shared] + prompt, max_tokens, options)
        self.run.add(f"r{self.count}", request)
        self.count += 1

    @precondition(lambda self: self.alive())
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.run.abort(data.draw(st.sampled_from(self.alive())))

    @precondition(lambda self: self.run.engine.busy)
    @rule(steps=st.integers(1, 6))
    def step(self, steps: int) -> None:
        for _ in range(steps):
            if self.run.engine.busy:
                self.run.step()

    def alive(self) -> list[str]:
        requests = self.run.engine.requests
        return [name for name in requests if not requests[name].is_finished()]

    def teardown(self) -> None:
        """Every output and NFE equals the oracle's, and nothing is held."""
        self.run.drain()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_any_interleaving_equals_the_oracle(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    budget = 24 if policy.block_causal else 384
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=budget)
    run_state_machine_as_test(
        lambda: Interleaving(policy, config),
        settings=settings(
            max_examples=6,
            stateful_step_count=30,
            suppress_health_check=list(HealthCheck),
        ),
    )
