"""Asynchronous scheduling on a CPU: on for served models if the user asks for it, else off."""

import inspect
from pathlib import Path

import pytest
from vllm.platforms import current_platform
from vllm.platforms.cpu import CpuPlatform

from tests.upstream.configs import llama, make_config

pytestmark = pytest.mark.skipif(not current_platform.is_cpu(), reason="about the CPU platform")


def test_vllm_still_turns_it_off_whatever_the_user_says(shipped_model: Path) -> None:
    config = make_config(shipped_model, async_scheduling=True)
    inspect.unwrap(CpuPlatform.check_and_update_config.__func__)(CpuPlatform, config)
    assert config.scheduler_config.async_scheduling is False


@pytest.mark.parametrize(
    ("asked", "expected"), [(True, True), (False, False), (None, False)], ids=str
)
def test_served_models_get_what_the_user_asks_for(
    shipped_model: Path, asked: bool | None, expected: bool
) -> None:
    config = make_config(shipped_model, async_scheduling=asked)
    assert config.scheduler_config.async_scheduling is expected
    assert config.max_concurrent_batches == 1 + expected


@pytest.mark.parametrize("asked", [True, False, None], ids=str)
def test_other_models_do_not(tmp_path: Path, asked: bool | None) -> None:
    config = make_config(llama(tmp_path), async_scheduling=asked)
    assert config.scheduler_config.async_scheduling is False


def test_the_default_is_resolved_after_the_hook_and_before_the_platform_decides() -> None:
    from vllm.config import VllmConfig

    source = inspect.getsource(inspect.unwrap(VllmConfig.__post_init__))
    steps = [
        source.index("self.try_verify_and_update_config()"),
        source.index("self.scheduler_config.async_scheduling is None"),
        source.index("current_platform.check_and_update_config(self)"),
    ]
    assert steps == sorted(steps)
