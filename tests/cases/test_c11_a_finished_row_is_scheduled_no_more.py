"""C11: a request that has met its stop token takes no further part in the batch."""

from typing import Any

import pytest

from tests.models.mock_run import MockRun
from tests.models.policies import BLOCK4, DUAL, NONE, PREFIX, Policy, ToyRequest

STOP = 21
SHORT = ToyRequest(1, [3, 1, 4, 1, 5, 9, 2, 6], 40, {"decoding": "low_confidence"}, (STOP, 13))
LONG = ToyRequest(1, [2, 7, 1, 8, 2, 8], 45, {"decoding": "low_confidence"})


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", [NONE, PREFIX, DUAL, BLOCK4], ids=lambda p: p.name)
def test_a_row_that_met_its_stop_token_is_not_scheduled_while_its_neighbour_runs(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    """https://github.com/huggingface/diffusers/issues/13598: finished rows of a batch went on
    producing."""
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=384)
    alone = MockRun(policy, config)
    alone.add("long", LONG)
    alone.drain()

    run = MockRun(policy, config)
    run.add("short", SHORT)
    run.add("long", LONG)
    scheduled_short, scheduled_after = 0, 0
    while run.engine.busy:
        finished = run.engine.requests["short"].is_finished()
        output = run.step()
        scheduled_short += "short" in output.num_scheduled_tokens
        if finished:
            scheduled_after += 1
            assert "short" not in output.num_scheduled_tokens
            assert "short" not in run.engine.worker.slots
    run.drain()

    assert scheduled_after > 10
    assert run.engine.outputs["short"][-1] == STOP
    # With asynchronous scheduling one step is under way when the stop token arrives.
    assert scheduled_short - run.engine.nfe("short") in ({0, 1, 2} if asynchronous else {0})
    assert run.engine.outputs["long"] == alone.engine.outputs["long"]
    assert run.engine.nfe("long") == alone.engine.nfe("long")
