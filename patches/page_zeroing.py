"""Pages of the KV cache are set to zero on a CPU when the scheduler asks for it, for served models.

Symptom     After a request whose keys and values were NaN has ended with an error, requests that
            get its pages compute NaN as well.
Mechanism   CPU attention computes with whole pages: a position after a sequence's end has
            probability 0, and 0 times the NaN that is left there is NaN. vLLM's schedulers can have
            pages set to zero before they are used again (`SchedulerOutput.new_block_ids_to_zero`),
            but the runner has what does it only for Mamba layers and caches of mixed precision, and
            it is a Triton kernel. The runner of a served model gets one in plain torch.
            `ReMixScheduler` asks for it.
Upstream    `vllm/v1/worker/gpu/model_runner.py` (`kv_block_zeroer`), `vllm/v1/worker/utils.py`.
Delete when CPU attention leaves out what follows a sequence's end, as the Triton and FlashAttention
            kernels do.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .served import is_served

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner


class PageZeroer:
    """Stands in for vLLM's ``KVBlockZeroer``.

    Args:
        layers: vLLM's attention layers by name, each with its ``kv_cache``, ``[blocks, ...]``.
        num_pages: the scheduler's blocks; a kernel's may be smaller, a whole number to one of them.
    """

    def __init__(self, layers: Mapping[str, Any], num_pages: int) -> None:
        self.layers = layers
        self.num_pages = num_pages

    def zero_block_ids(self, block_ids: Sequence[int]) -> None:
        for layer in self.layers.values():
            layer.kv_cache.unflatten(0, (self.num_pages, -1))[list(block_ids)] = 0


@functools.cache
def apply() -> None:
    """Called in workers of served models only: no other process need import a runner."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner

        _add_zeroer(GPUModelRunner)


def _add_zeroer(runner_cls: "type[GPUModelRunner]") -> None:
    stock = runner_cls.initialize_kv_cache

    @functools.wraps(stock)
    def initialize_kv_cache(
        self: "GPUModelRunner", kv_cache_config: "KVCacheConfig", *args: Any, **kwargs: Any
    ) -> None:
        stock(self, kv_cache_config, *args, **kwargs)
        if is_served(self.model_config):
            layers = self.compilation_config.static_forward_context
            self.kv_block_zeroer = PageZeroer(layers, kv_cache_config.num_blocks)

    runner_cls.initialize_kv_cache = initialize_kv_cache
