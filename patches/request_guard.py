"""Checks on each request in the front end, with the engine's own options and the prompt at hand.

Symptom     A prompt that contains the mask token (typed by a user, and turned into its id by the
            tokenizer) is taken for a hole to fill. A sampling parameter that greedy decoding cannot
            honour is ignored without a word. A checkpoint whose `generation_config.json` leaves out
            the family's end-of-turn token generates past it.
Mechanism   Every request passes `InputProcessor.process_inputs`, offline and served, streamed or
            not; for served models it calls `remix_vllm.serving.guard` before and after. What it
            returns has the prompt's ids and `max_tokens` filled in. The guard belongs to the
            `InputProcessor`, so engines of one process stay apart and every API-server process
            builds its own from the configuration it gets. It also holds the ids that end every
            generation, to which the family's are added.
Upstream    `vllm/v1/engine/input_processor.py`. The hooks meant for this see too little:
            `validate_params` of a logits processor is a class method that gets neither the
            configuration nor the prompt; `Platform.validate_request` gets the prompt, but only a
            platform can define it.
Delete when vLLM hands configuration and prompt to a validator of the engine's own.
"""

import functools
from typing import TYPE_CHECKING, Any

from . import early_refusal
from .served import is_served

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.engine import EngineCoreRequest
    from vllm.v1.engine.input_processor import InputProcessor


@functools.cache
def apply() -> None:
    from vllm.v1.engine.input_processor import InputProcessor

    _attach_guard(InputProcessor)
    _call_guard(InputProcessor)


def _attach_guard(processor_cls: "type[InputProcessor]") -> None:
    stock = processor_cls.__init__

    @functools.wraps(stock)
    def __init__(
        self: "InputProcessor", vllm_config: "VllmConfig", *args: Any, **kwargs: Any
    ) -> None:
        from remix_vllm.engine.vocabulary import stop_token_ids
        from remix_vllm.serving.guard import RequestGuard

        stock(self, vllm_config, *args, **kwargs)
        served = is_served(vllm_config.model_config)
        self.remix_guard = RequestGuard(vllm_config) if served else None
        if served:
            early_refusal.apply()
            declared = self.generation_config_fields
            stops = stop_token_ids(vllm_config, declared.get("eos_token_id"))
            self.generation_config_fields = declared | {"eos_token_id": stops}

    processor_cls.__init__ = __init__


def _call_guard(processor_cls: "type[InputProcessor]") -> None:
    from vllm.sampling_params import SamplingParams

    stock = processor_cls.process_inputs

    @functools.wraps(stock)
    def process_inputs(
        self: "InputProcessor",
        request_id: str,
        prompt: Any,
        params: Any,
        *args: Any,
        **kwargs: Any,
    ) -> "EngineCoreRequest":
        if self.remix_guard is None or not isinstance(params, SamplingParams):
            return stock(self, request_id, prompt, params, *args, **kwargs)
        self.remix_guard.check_params(params)
        request = stock(self, request_id, prompt, params, *args, **kwargs)
        self.remix_guard.check_request(request)
        return request

    processor_cls.process_inputs = process_inputs
