"""Sampling parameters of diffusion models: which vLLM refuses, and for which models."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.exceptions import VLLMValidationError

from remix_vllm.families import SERVED_ARCHITECTURES
from remix_vllm_patches import sampling_params

sampling_params.apply()

REFUSED: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"min_p": 0.5},
    {"seed": 1},
    {"min_tokens": 2},
    {"logit_bias": {1: 1.0}},
    {"bad_words": ["a"]},
    {"allowed_token_ids": [1]},
]


def model(architecture: str, is_diffusion: bool = True) -> Any:
    return SimpleNamespace(architectures=[architecture], is_diffusion=is_diffusion)


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_vllm_still_refuses_them_for_every_diffusion_model(given: dict[str, Any]) -> None:
    stock = inspect.unwrap(SamplingParams._validate_diffusion)
    with pytest.raises(VLLMValidationError, match="not yet supported with diffusion models"):
        stock(SamplingParams(**given), model(SERVED_ARCHITECTURES[0]))


@pytest.mark.parametrize("given", REFUSED, ids=str)
@pytest.mark.parametrize("architecture", SERVED_ARCHITECTURES)
def test_for_served_models_the_request_guard_decides(
    architecture: str, given: dict[str, Any]
) -> None:
    SamplingParams(**given)._validate_diffusion(model(architecture))


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_they_are_refused_for_other_diffusion_models(given: dict[str, Any]) -> None:
    with pytest.raises(VLLMValidationError, match="not yet supported with diffusion models"):
        SamplingParams(**given)._validate_diffusion(model("DiffusionGemmaForBlockDiffusion"))


@pytest.mark.parametrize("given", REFUSED, ids=str)
def test_they_are_allowed_for_autoregressive_models(given: dict[str, Any]) -> None:
    SamplingParams(**given)._validate_diffusion(model("LlamaForCausalLM", is_diffusion=False))


@pytest.mark.parametrize("architecture", [SERVED_ARCHITECTURES[0], "OtherDiffusionModel"])
def test_structured_outputs_are_refused_for_all_diffusion_models(architecture: str) -> None:
    from vllm.sampling_params import StructuredOutputsParams

    params = SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))
    with pytest.raises(VLLMValidationError, match="Structured outputs are not yet supported"):
        params._validate_structured_outputs(model(architecture), SimpleNamespace(), None)
