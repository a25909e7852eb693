"""Sampling parameters that vLLM refuses for every diffusion model, allowed for the served ones.

Symptom     "The temperature, min_p, seed, min_tokens, logit_bias, bad_words, and allowed_token_ids
            sampling parameters are not yet supported with diffusion models", for any request whose
            temperature is not 1.
Mechanism   `SamplingParams.verify` calls `_validate_diffusion`, written for the fixed temperature
            schedule of DiffusionGemma's sampler. It is skipped for served models, whose parameters
            the request guard checks (`remix_vllm.serving.guard`, run by vLLM in the same place for
            every request). What vLLM refuses elsewhere, structured outputs for one, it goes on
            refusing.
Upstream    `vllm/sampling_params.py`.
Delete when `_validate_diffusion` asks the model, or its class, what is supported.
"""

import functools
from typing import TYPE_CHECKING

from .served import is_served

if TYPE_CHECKING:
    from vllm.config import ModelConfig
    from vllm.sampling_params import SamplingParams


@functools.cache
def apply() -> None:
    from vllm.sampling_params import SamplingParams

    stock = SamplingParams._validate_diffusion

    @functools.wraps(stock)
    def _validate_diffusion(self: "SamplingParams", model_config: "ModelConfig") -> None:
        if not is_served(model_config):
            stock(self, model_config)

    SamplingParams._validate_diffusion = _validate_diffusion
