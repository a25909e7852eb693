"""What the CPU kernels rely on in vLLM's kernel dispatcher and in its Triton kernels."""

import inspect
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from vllm.platforms import current_platform
from vllm.platforms.cpu import CpuPlatform
from vllm.triton_utils import HAS_TRITON, dispatcher
from vllm.triton_utils.importing import TritonPlaceholder

from remix_vllm_patches.cpu_kernels import KERNELS

pytestmark = pytest.mark.skipif(
    HAS_TRITON or not current_platform.is_cpu(), reason="Triton's kernels run here"
)

# Options of a launch rather than parameters of a kernel.
LAUNCH_OPTIONS = {"num_warps"}


def original(name: str) -> Callable[..., Any]:
    """The kernel under this name in vLLM, whether or not an engine of this process overrode it."""
    if name in dispatcher._registry:
        return dispatcher._registry[name][0]
    host, attribute = dispatcher._resolve_kernel(name)
    return getattr(host, attribute)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_have_the_names_and_parameters_of_those_they_replace(name: str) -> None:
    ours = inspect.signature(KERNELS[name]).parameters
    theirs = dispatcher._kernel_arg_names(original(name))
    assert tuple(parameter for parameter in ours if parameter not in LAUNCH_OPTIONS) == theirs


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_take_the_defaults_of_those_they_replace(name: str) -> None:
    theirs = inspect.signature(original(name)).parameters
    for parameter in inspect.signature(KERNELS[name]).parameters.values():
        if parameter.name not in LAUNCH_OPTIONS:
            assert parameter.default == theirs[parameter.name].default


def test_vllm_itself_overrides_no_kernel_of_the_v2_runner_yet() -> None:
    stock = inspect.getsource(inspect.unwrap(CpuPlatform.register_triton_kernel_overrides.__func__))
    assert "register_kernels" in stock
    assert "vllm.v1.worker.gpu." not in stock


def test_the_stand_in_for_triton_still_lacks_what_launchers_call() -> None:
    assert not hasattr(TritonPlaceholder(), "next_power_of_2")


def test_an_override_reaches_every_holder_and_forwards_all_but_the_grid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kernel(first: int, second: int, SIZE: int) -> None: ...

    home, borrower = ModuleType("kernel_home"), ModuleType("kernel_borrower")
    home.kernel = borrower.borrowed = kernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kernel_home", home)
    monkeypatch.setitem(sys.modules, "kernel_borrower", borrower)
    calls: list[tuple[int, ...]] = []

    def ours(first: int, second: int, SIZE: int, num_warps: int = 4) -> None:
        calls.append((first, second, SIZE, num_warps))

    try:
        dispatcher.register_kernels({"kernel_home.kernel": ours})
        home.kernel[(9,)](1, 2, SIZE=3, num_warps=1)
        borrower.borrowed[(9, 9)](1, 2, SIZE=3)
    finally:
        dispatcher._registry.pop("kernel_home.kernel")
    assert calls == [(1, 2, 3, 1), (1, 2, 3, 4)]


def test_workers_load_plugins_then_override_kernels_then_import_their_class() -> None:
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    source = inspect.getsource(inspect.unwrap(WorkerWrapperBase.init_worker))
    steps = [
        source.index("load_general_plugins()"),
        source.index("register_triton_kernel_overrides()"),
        source.index("resolve_obj_by_qualname("),
    ]
    assert steps == sorted(steps)
