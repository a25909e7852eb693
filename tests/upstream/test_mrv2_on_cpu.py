"""Model Runner V2 on a CPU: what vLLM does, and what it does with the patch."""

import inspect
from pathlib import Path

import pytest
import vllm.config.vllm as config_module
from vllm.config import VllmConfig
from vllm.platforms import current_platform
from vllm.triton_utils import HAS_TRITON

from remix_vllm_patches import mrv2_on_cpu
from remix_vllm_patches.served import is_served
from tests.upstream.configs import llama, make_config

pytestmark = pytest.mark.skipif(not current_platform.is_cpu(), reason="about the CPU platform")


def stock_use_v2(config: VllmConfig) -> bool:
    return inspect.unwrap(VllmConfig.use_v2_model_runner.fget)(config)


def stock_validate_v2(config: VllmConfig) -> None:
    inspect.unwrap(VllmConfig._validate_v2_model_runner)(config)


@pytest.fixture(scope="module")
def served(shipped_model: Path) -> VllmConfig:
    return make_config(shipped_model)


@pytest.fixture(scope="module")
def unserved(tmp_path_factory: pytest.TempPathFactory) -> VllmConfig:
    return make_config(llama(tmp_path_factory.mktemp("llama")))


def test_vllm_still_refuses_the_v2_runner_without_triton(served: VllmConfig) -> None:
    assert not HAS_TRITON
    assert not stock_use_v2(served)
    with pytest.raises(ValueError, match="requires Triton"):
        stock_validate_v2(served)


def test_vllm_still_refuses_diffusion_models_with_the_v1_runner(served: VllmConfig) -> None:
    with pytest.raises(ValueError, match="does not support: diffusion models"):
        served._validate_v1_model_runner()


def test_vllm_chooses_the_v2_runner_for_served_models_with_triton(
    served: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_module, "HAS_TRITON", True)
    assert stock_use_v2(served)
    stock_validate_v2(served)


def test_served_models_use_the_v2_runner(served: VllmConfig) -> None:
    assert served.use_v2_model_runner
    served._validate_v2_model_runner()


def test_the_user_may_still_refuse_the_v2_runner(
    served: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
    assert not served.use_v2_model_runner


def test_other_limits_of_the_v2_runner_still_hold(
    served: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        VllmConfig, "_get_v2_model_runner_unsupported_features", lambda self: ["this"]
    )
    assert not served.use_v2_model_runner
    with pytest.raises(ValueError, match="does not yet support: this"):
        served._validate_v2_model_runner()


def test_other_models_stay_with_the_v1_runner(unserved: VllmConfig) -> None:
    assert not unserved.use_v2_model_runner
    assert not stock_use_v2(unserved)
    with pytest.raises(ValueError, match="requires Triton"):
        unserved._validate_v2_model_runner()


def test_vllms_flag_is_left_alone(served: VllmConfig) -> None:
    assert served.use_v2_model_runner
    assert not config_module.HAS_TRITON


def test_applying_twice_patches_once() -> None:
    patched = VllmConfig.use_v2_model_runner
    mrv2_on_cpu.apply()
    assert VllmConfig.use_v2_model_runner is patched


def test_vllm_may_ask_before_there_is_a_model() -> None:
    without = VllmConfig()
    assert without.use_v2_model_runner == stock_use_v2(without)
    assert not is_served(None)
