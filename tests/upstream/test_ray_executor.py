"""What Ray and vLLM's executor for it do by themselves, on which the patches for Ray rest.

Nothing here starts Ray: `tests/distributed/` has the clusters.
"""

import inspect
import socket
from pathlib import Path
from typing import Any

import pytest
from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.platforms.cpu import CpuPlatform
from vllm.v1.executor.abstract import Executor

from remix_vllm.plugin import register
from tests.upstream.configs import llama, make_config

ray = pytest.importorskip("ray")

from vllm.v1.executor import ray_utils  # noqa: E402
from vllm.v1.executor.ray_executor_v2 import RayExecutorV2, RayWorkerProc  # noqa: E402
from vllm.v1.worker.cpu_worker import CPUWorker  # noqa: E402

register()

cpu_only = pytest.mark.skipif(not current_platform.is_cpu(), reason="about the CPU platform")


def asking_for_ray(model: Path) -> VllmConfig:
    config = make_config(model)
    config.parallel_config.distributed_executor_backend = "ray"
    return config


def worker_asking(
    monkeypatch: pytest.MonkeyPatch, key: str, accelerators: dict[str, list[str]]
) -> Any:
    """What vLLM's worker says its devices are, if these are what Ray lends it."""

    class Context:
        def get_node_id(self) -> str:
            return "node"

        def get_accelerator_ids(self) -> dict[str, list[str]]:
            return accelerators

    monkeypatch.setattr(ray, "get_runtime_context", Context)
    monkeypatch.setattr(CpuPlatform, "ray_device_key", key)
    return RayWorkerProc.get_node_and_physical_gpu_ids(object.__new__(RayWorkerProc))


# ray_nodes


def test_vllm_still_has_one_executor_for_all_models_on_ray(shipped_model: Path) -> None:
    assert inspect.unwrap(Executor.get_class)(asking_for_ray(shipped_model)) is RayExecutorV2


def test_only_served_models_get_another(shipped_model: Path, tmp_path: Path) -> None:
    executor_cls = Executor.get_class(asking_for_ray(shipped_model))
    assert "ReMixRayExecutor" in [base.__name__ for base in executor_cls.__mro__]
    assert Executor.get_class(asking_for_ray(llama(tmp_path))) is RayExecutorV2


def test_an_executor_class_for_a_backend_would_not_count_as_ray(shipped_model: Path) -> None:
    """Why the class is chosen in `get_class`."""
    config = asking_for_ray(shipped_model)
    assert config.parallel_config.use_ray
    config.parallel_config.distributed_executor_backend = type("Other", (Executor,), {})
    assert not config.parallel_config.use_ray


def test_vllm_still_asks_no_node_what_is_installed_there() -> None:
    """Red once it does: then `ray_nodes` may go."""
    for source in map(inspect.getsource, (ray_utils, RayExecutorV2)):
        assert "importlib.metadata" not in source
        assert "entry_points" not in source


def test_a_cluster_can_be_initialized_before_the_executor_does() -> None:
    """Its own call then leaves cluster and placement as they are."""
    source = inspect.getsource(ray_utils.initialize_ray_cluster)
    assert "if ray.is_initialized():" in source
    assert "if parallel_config.placement_group:" in source
    start = inspect.getsource(RayExecutorV2._init_executor)
    call = "initialize_ray_cluster(self.parallel_config, require_gpu_on_driver=False)"
    assert call in start


# ray_on_cpu


@cpu_only
def test_vllm_still_refuses_ray_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="does not support ray"):
        worker_asking(monkeypatch, CpuPlatform.__base__.ray_device_key, {})
    source = inspect.getsource(ray_utils.initialize_ray_cluster)
    assert "if not device_str:" in source


@cpu_only
def test_the_patch_alone_gives_the_platform_no_device() -> None:
    """Else other models would run into what `cpu_ray` cures, instead of being refused."""
    assert "ray_device_key" not in vars(CpuPlatform)


# cpu_ray


@cpu_only
def test_vllms_worker_still_asks_for_numbers_that_cpus_have_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ray._private.accelerators import get_all_accelerator_resource_names

    names = get_all_accelerator_resource_names()
    assert "CPU" not in names
    with pytest.raises(KeyError, match="CPU"):
        worker_asking(monkeypatch, "CPU", {name: [] for name in names})


@cpu_only
def test_ray_still_refuses_what_vllm_would_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuPlatform, "ray_device_key", "CPU")
    wanted = RayExecutorV2._get_actor_resource_kwargs()
    assert wanted["resources"] == {"CPU": 1}
    with pytest.raises(ValueError, match="num_cpus"):
        ray.remote(**wanted)(RayWorkerProc)


def test_the_executor_still_looks_its_worker_up_by_name() -> None:
    assert "ray.remote(RayWorkerProc)" in inspect.getsource(RayExecutorV2._init_executor)


def test_ranks_still_share_memory_by_the_end_of_the_address() -> None:
    assert 'init_method.split(":")[-1]' in inspect.getsource(CPUWorker.init_device)


def test_torch_does_not_mind_what_is_put_there() -> None:
    from torch.distributed.rendezvous import rendezvous

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    store, rank, size = next(rendezvous(f"tcp://127.0.0.1:{port}?node=abc", 0, 1))
    store.set("key", "value")
    assert (store.get("key"), rank, size) == (b"value", 0, 1)
