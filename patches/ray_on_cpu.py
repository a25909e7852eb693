"""Ray's executor on machines without accelerators, for served models.

Symptom     "current platform cpu does not support ray." for `--distributed-executor-backend ray`,
            so the path of a Ray cluster could not be tested without one of GPUs.
Mechanism   `CpuPlatform.ray_device_key` is empty. Little but the name is missing: Ray counts CPUs
            as it counts GPUs, and the executor takes any resource. `cpu_ray` has a subclass of the
            executor that places each worker in a bundle of one CPU, and one of its workers that
            asks Ray for no accelerator ids.
Upstream    `vllm/platforms/cpu.py`, `vllm/v1/executor/ray_executor_v2.py`.
Delete when the CPU platform names a Ray resource.
"""

import functools
from typing import TYPE_CHECKING

from . import ray_nodes

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.executor.abstract import Executor


@functools.cache
def apply() -> None:
    from vllm.platforms import current_platform
    from vllm.v1.executor.abstract import Executor

    if not current_platform.is_cpu():
        return
    ray_nodes.apply()
    stock = Executor.get_class

    @functools.wraps(stock)
    def get_class(vllm_config: "VllmConfig") -> "type[Executor]":
        executor_cls = stock(vllm_config)
        if executor_cls.__name__ != "ReMixRayExecutor":
            return executor_cls
        from .cpu_ray import CpuRayExecutor

        return CpuRayExecutor

    Executor.get_class = staticmethod(get_class)
