"""Model Runner V2 on a CPU without Triton, for the models this plugin serves.

Symptom     "Model Runner V2 requires Triton; using the V1 model runner instead", then "Model Runner
            V1 does not support: diffusion models".
Mechanism   `VllmConfig.use_v2_model_runner` and `_validate_v2_model_runner` ask the module flag
            `HAS_TRITON`. Served models get copies of these two functions that see it true; the flag
            itself stays, since with it every autoregressive model would move to the V2 runner and
            fail in sampler kernels that have no fallback. The Triton kernels on the diffusion path
            get the fallbacks of `cpu_kernels`, by vLLM's own dispatcher and in its own hook for
            that; no runner but V2 uses them.
Upstream    `vllm/config/vllm.py`, `vllm/triton_utils/dispatcher.py`, and
            `CpuPlatform.register_triton_kernel_overrides`, which each worker calls after it has
            loaded the plugins and before it imports its worker class.
Delete when vLLM runs the V2 runner on a CPU without Triton, or the CPU wheel brings a Triton with a
            CPU backend. With a working Triton, on a GPU too, this patch does nothing: the V2 runner
            is vLLM's own choice there.
"""

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .served import is_served

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.platforms.cpu import CpuPlatform


@functools.cache
def apply() -> None:
    from vllm.platforms import current_platform
    from vllm.triton_utils import HAS_TRITON

    if current_platform.is_cpu() and not HAS_TRITON:
        _lift_triton_gate()
        _add_kernel_overrides()


def _lift_triton_gate() -> None:
    from vllm.config import VllmConfig

    stock_use = VllmConfig.use_v2_model_runner.fget
    use_v2 = _seeing_triton(stock_use)

    @functools.wraps(stock_use)
    def use_v2_model_runner(self: "VllmConfig") -> bool:
        return (use_v2 if is_served(self.model_config) else stock_use)(self)

    stock_validate = VllmConfig._validate_v2_model_runner
    validate = _seeing_triton(stock_validate)

    @functools.wraps(stock_validate)
    def _validate_v2_model_runner(self: "VllmConfig") -> None:
        (validate if is_served(self.model_config) else stock_validate)(self)

    VllmConfig.use_v2_model_runner = property(use_v2_model_runner)
    VllmConfig._validate_v2_model_runner = _validate_v2_model_runner


def _seeing_triton(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function in a module namespace of its own, where ``HAS_TRITON`` is true."""
    namespace = {**function.__globals__, "HAS_TRITON": True}
    return types.FunctionType(
        function.__code__,
        namespace,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )


def _add_kernel_overrides() -> None:
    from vllm.platforms.cpu import CpuPlatform

    stock = CpuPlatform.register_triton_kernel_overrides.__func__

    @functools.wraps(stock)
    def register_triton_kernel_overrides(cls: "type[CpuPlatform]") -> None:
        stock(cls)
        _register_kernels()

    CpuPlatform.register_triton_kernel_overrides = classmethod(register_triton_kernel_overrides)


@functools.cache
def _register_kernels() -> None:
    # It replaces parts of torch.cuda and of vLLM that modules of the V2 runner copy on import.
    import vllm.v1.worker.cpu.shm  # noqa: F401  # isort: skip
    from vllm.triton_utils import triton
    from vllm.triton_utils.dispatcher import register_kernels
    from vllm.utils.math_utils import next_power_of_2

    from .cpu_kernels import KERNELS

    # The stand-in for Triton has no such function, and kernel launchers size their blocks with it.
    if not hasattr(triton, "next_power_of_2"):
        triton.next_power_of_2 = next_power_of_2
    register_kernels(KERNELS)
