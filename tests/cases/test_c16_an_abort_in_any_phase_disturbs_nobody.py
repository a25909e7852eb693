"""C16: a request may be aborted at any moment of its life."""

from typing import Any

import pytest

from tests.models.mock_run import MockRun
from tests.models.policies import BLOCK4, BLOCK8, DUAL, NONE, Policy, ToyRequest

OTHER = ToyRequest(4, [i * 3 % 19 for i in range(14)], 20, {"threshold": 0.3})
VICTIM = ToyRequest(4, [i * 5 % 19 for i in range(40)], 30, {"decoding": "low_confidence"})


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", [NONE, DUAL, BLOCK4, BLOCK8], ids=lambda p: p.name)
def test_aborted_after_any_number_of_steps(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    """https://github.com/torch-spyre/sendnn-inference/issues/577: while it waits (0 steps), in a
    chunk of its prompt (block-causal), in the middle of a block, with a step in flight."""
    # A budget of two or three blocks: the prompt of 40 takes several steps.
    budget = 24 if policy.block_causal else 192
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=budget)
    for steps in range(12):
        run = MockRun(policy, config)
        run.add("other", OTHER)
        run.add("victim", VICTIM)
        for _ in range(steps):
            run.step()
        run.abort("victim")
        run.drain()
        returned = run.engine.outputs["victim"]
        expected = VICTIM.expected(policy, run.engine.worker.options).token_ids
        assert returned == expected[: len(returned)]
