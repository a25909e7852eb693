"""C24: the scheduler of a running engine is the one for its ``async_scheduling``, and runs so."""

from typing import Any

import pytest

from remix_vllm.engine.scheduler import ReMixAsyncScheduler, ReMixScheduler


@pytest.mark.parametrize(
    ("asynchronous", "scheduler_cls", "steps_in_flight"),
    [(False, ReMixScheduler, 1), (True, ReMixAsyncScheduler, 2)],
    ids=["sync", "async"],
)
def test_the_engine_runs_what_was_asked_for(
    engine: Any, asynchronous: bool, scheduler_cls: type, steps_in_flight: int
) -> None:
    """https://github.com/vllm-project/vllm/issues/43724: a custom scheduler class turned
    asynchronous scheduling off, which nothing but the speed showed."""
    core = engine(async_scheduling=asynchronous).llm_engine.engine_core.engine_core
    assert core.vllm_config.scheduler_config.async_scheduling is asynchronous
    assert type(core.scheduler) is scheduler_cls
    assert core.vllm_config.max_concurrent_batches == steps_in_flight
    assert (core.batch_queue is not None) is asynchronous
