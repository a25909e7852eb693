"""C12: a stop token may sit anywhere in a block."""

from typing import Any

import pytest

from tests.models.mock_run import MockRun
from tests.models.policies import BLOCK8, DUAL, NONE, PREFIX, Policy, ToyRequest

STOP = 21
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
BLOCK = 8
NEIGHBOUR = ToyRequest(1, [2, 7, 1, 8], 24, {"threshold": 0.3})


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("offset", range(BLOCK))
@pytest.mark.parametrize("policy", [NONE, PREFIX, DUAL, BLOCK8], ids=lambda p: p.name)
def test_output_is_cut_at_the_stop_and_no_counter_underflows(
    policy: Policy, offset: int, asynchronous: bool, mock_configs: Any
) -> None:
    """https://github.com/tenstorrent/vllm/issues/459: a stop in the middle of a block underflowed
    the scheduler's placeholders."""
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=384)
    stop = (STOP, len(PROMPT) + BLOCK + offset)
    run = MockRun(policy, config)
    run.add("all at once", ToyRequest(1, PROMPT, 40, {"threshold": 0.0}, stop))
    run.add("one by one", ToyRequest(1, PROMPT, 40, {"decoding": "low_confidence"}, stop))
    run.add("neighbour", NEIGHBOUR)
    while run.engine.busy:
        run.step()
        for request in run.engine.requests.values():
            assert request.num_output_placeholders >= 0
            assert request.num_computed_tokens >= 0
            assert request.num_in_flight_tokens >= 0
    run.drain()
    for name in ("all at once", "one by one"):
        tokens = run.engine.outputs[name]
        assert (len(tokens), tokens.index(STOP)) == (BLOCK + offset + 1, BLOCK + offset)
    assert run.engine.nfe("all at once") == 2
