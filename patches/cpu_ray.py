"""Executor and worker of :mod:`ray_on_cpu`. Importing this imports Ray."""

from typing import Any

import ray
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.executor import ray_executor_v2

from remix_vllm.engine.ray_executor import ReMixRayExecutor


class CpuRayWorker(ray_executor_v2.RayWorkerProc):
    """A worker that Ray lends a CPU, not a device with a number."""

    def get_node_and_physical_gpu_ids(self) -> tuple[str, list[int]]:
        # Any number will do that no other worker of the node has.
        return ray.get_runtime_context().get_node_id(), [self._init_kwargs["rank"]]

    def initialize_worker(
        self,
        local_rank: int,
        env_vars: dict[str, str],
        distributed_init_method: str,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        # vLLM's ranks share memory if the ends of this address are alike. They are on all nodes,
        # since the port is; torch does not mind what follows the question mark.
        node_id = ray.get_runtime_context().get_node_id()
        address = f"{distributed_init_method}?node={node_id}"
        super().initialize_worker(local_rank, env_vars, address, *args, **kwargs)


class CpuRayExecutor(ReMixRayExecutor):
    """Ray's executor with CPUs for devices."""

    def _init_executor(self) -> None:
        # Here and not where the patch is applied: for other models Ray stays refused.
        CpuPlatform.ray_device_key = "CPU"
        ray_executor_v2.RayWorkerProc = CpuRayWorker
        super()._init_executor()

    @staticmethod
    def _get_actor_resource_kwargs() -> dict[str, Any]:
        # The bundle holds the CPU; Ray takes the name "CPU" for no custom resource.
        return {"num_gpus": 0}
