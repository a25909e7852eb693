"""Which of the two schedulers an engine runs with."""

from typing import Any

from vllm.config import VllmConfig
from vllm.v1.core.sched.interface import SchedulerInterface

SCHEDULER_FACTORY = f"{__name__}.make_scheduler"
"""Value for ``scheduler_config.scheduler_cls``."""


def make_scheduler(*, vllm_config: VllmConfig, **arguments: Any) -> SchedulerInterface:
    """The scheduler for ``async_scheduling`` as it finally is.

    The configuration hook cannot choose: it runs before vLLM decides on async scheduling and before
    the platform, which has the last word (``VllmConfig.__post_init__``). The engine core resolves
    ``scheduler_cls`` by name and calls it with keyword arguments only, so a function does as well
    as a class (``EngineCore.__init__``).
    """
    from remix_vllm.engine.scheduler import ReMixAsyncScheduler, ReMixScheduler

    asynchronous = vllm_config.scheduler_config.async_scheduling
    scheduler_cls = ReMixAsyncScheduler if asynchronous else ReMixScheduler
    return scheduler_cls(vllm_config=vllm_config, **arguments)
