"""Asynchronous scheduling on a CPU, for served models and only where the user asks for it.

Symptom     `--async-scheduling` is ignored on a CPU, so the asynchronous path could not be tested
            there.
Mechanism   `VllmConfig.__post_init__` turns `async_scheduling=None` into True, whereupon
            `CpuPlatform.check_and_update_config` sets it to False whatever the user said. For a
            served model, None becomes False before the first of these, where the second would put
            it anyway; so a True that arrives at the second is the user's, and is put back.
Upstream    `vllm/platforms/cpu.py`: "async scheduling is not required on CPU". That is a choice,
            not a limitation: the V2 runner and the executors used on a CPU are the same as on a
            GPU.
Delete when `CpuPlatform.check_and_update_config` leaves an explicit True alone.
"""

import functools
from typing import TYPE_CHECKING

from .served import is_served

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.platforms.cpu import CpuPlatform


@functools.cache
def apply() -> None:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        _default_to_off()
        _keep_explicit()


def _default_to_off() -> None:
    from vllm.config import VllmConfig

    stock = VllmConfig.try_verify_and_update_config

    @functools.wraps(stock)
    def try_verify_and_update_config(self: "VllmConfig") -> None:
        scheduler = self.scheduler_config
        if is_served(self.model_config) and scheduler.async_scheduling is None:
            scheduler.async_scheduling = False
        stock(self)

    VllmConfig.try_verify_and_update_config = try_verify_and_update_config


def _keep_explicit() -> None:
    from vllm.platforms.cpu import CpuPlatform

    stock = CpuPlatform.check_and_update_config.__func__

    @functools.wraps(stock)
    def check_and_update_config(cls: "type[CpuPlatform]", vllm_config: "VllmConfig") -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        stock(cls, vllm_config)
        if is_served(vllm_config.model_config):
            vllm_config.scheduler_config.async_scheduling = asked

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
