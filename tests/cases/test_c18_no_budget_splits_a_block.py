"""C18: a token budget smaller than a step's span is refused, never met by cutting a block."""

from typing import Any

import pytest

from tests.models.mock_run import MockRun
from tests.models.policies import BLOCK8, ToyRequest

REQUEST = ToyRequest(4, [i * 7 % 19 for i in range(30)], 20, {"threshold": 0.3})


@pytest.mark.parametrize("budget", [5, 7, 8, 9, 15])
def test_too_small_a_budget_is_refused_at_start(budget: int, mock_configs: Any) -> None:
    with pytest.raises(ValueError, match=f"max_num_batched_tokens={budget}: .*16"):
        mock_configs(BLOCK8, async_scheduling=False, max_num_batched_tokens=budget)


@pytest.mark.parametrize("budget", [16, 17, 23, 24, 64])
def test_a_chunked_prompt_gives_the_same_as_an_unchunked_one(
    budget: int, mock_configs: Any
) -> None:
    config = mock_configs(BLOCK8, async_scheduling=False, max_num_batched_tokens=budget)
    run = MockRun(BLOCK8, config)
    run.add("a", REQUEST)
    while run.engine.busy:
        first = {name: slot.computed for name, slot in run.engine.worker.slots.items()}
        for name, length in run.step().num_scheduled_tokens.items():
            begins = first.get(name, 0)
            assert begins % 8 == 0
            assert (begins + length) % 8 == 0 or begins + length == 50
    # Draining compares with the oracle, which computes prompts whole.
    run.drain()
