"""Ray nodes are asked for the plugin before workers start on them.

Symptom     A Ray node without the plugin, or with another version of it, is found out late: by an
            `ActorDiedError` around `No module named 'remix_vllm'`, or not at all.
Mechanism   `Executor.get_class` gives served models that ask for Ray a subclass of its executor
            (`remix_vllm.engine.ray_executor`) that asks first. It is chosen here and not set as
            `distributed_executor_backend`, which vLLM compares with "ray" in other places as well.
Upstream    `vllm/v1/executor/abstract.py`. vLLM takes it that all nodes have the same environment.
Delete when vLLM compares the plugins of driver and workers.
"""

import functools
from typing import TYPE_CHECKING

from .served import is_served

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.executor.abstract import Executor


@functools.cache
def apply() -> None:
    from vllm.v1.executor.abstract import Executor

    stock = Executor.get_class

    @functools.wraps(stock)
    def get_class(vllm_config: "VllmConfig") -> "type[Executor]":
        executor_cls = stock(vllm_config)
        if executor_cls.__name__ != "RayExecutorV2" or not is_served(vllm_config.model_config):
            return executor_cls
        from remix_vllm.engine.ray_executor import ReMixRayExecutor

        return ReMixRayExecutor

    Executor.get_class = staticmethod(get_class)
