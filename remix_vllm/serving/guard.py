"""What a request may ask for. It runs in the front end, before the engine hears of the request.

vLLM's own hook for this, a logits processor's ``validate_params``, gets neither the engine's
options nor the prompt, and would be called by two engines of one process alike; so a guard is
attached to each ``InputProcessor`` (``patches/request_guard.py``), which also spares the worker a
logits processor.
"""

from vllm.config import VllmConfig
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest

from remix_vllm.config import RESUME_NFE_KEY, RequestOptions
from remix_vllm.engine.options import engine_options
from remix_vllm.engine.vocabulary import mask_token_id
from remix_vllm.option_fields import OptionError
from remix_vllm.serving.sampling import GREEDY_VALUES, NOT_GIVEN, refusal


class RequestGuard:
    """Checks the requests of one engine. Every error is a ``VLLMValidationError``, an HTTP 400."""

    def __init__(self, vllm_config: VllmConfig) -> None:
        """
        Raises:
            ValueError: bad engine options, or no mask id is known.
        """
        self.options = engine_options(vllm_config)
        self.mask_token_id = mask_token_id(vllm_config)
        self.max_model_len: int = vllm_config.model_config.max_model_len

    def check_params(self, params: SamplingParams) -> None:
        """Check what can be checked before the prompt is known.

        Raises:
            VLLMValidationError: a sampling parameter that is not supported, or a bad option.
        """
        for name in (*GREEDY_VALUES, *NOT_GIVEN):
            if reason := refusal(name, getattr(params, name)):
                raise VLLMValidationError(reason, parameter=name)
        self._request_options(params)

    def check_request(self, request: EngineCoreRequest) -> None:
        """Check the request as the engine will get it, with ``max_tokens`` filled in.

        Raises:
            VLLMValidationError: as :meth:`check_prompt`, or the request is of another kind.
        """
        params = request.sampling_params
        prompt = request.prompt_token_ids
        if params is None or params.max_tokens is None or prompt is None:
            raise VLLMValidationError(
                "ReMix decoding takes token ids and generates from them; this request does neither"
            )
        if request.resumable:
            raise VLLMValidationError(
                "resumable=True is not supported with ReMix decoding: a canvas cannot be moved"
            )
        self.check_prompt(prompt, params)

    def check_prompt(self, prompt: list[int], params: SamplingParams) -> None:
        """Check what can be checked once the prompt's ids are known.

        Raises:
            VLLMValidationError: the prompt is empty or holds the mask token, or the generation is
                longer than the options allow.
        """
        if not prompt:
            raise VLLMValidationError("The prompt cannot be empty", parameter="prompt")
        if self.mask_token_id in prompt:
            raise VLLMValidationError(
                f"prompt token {prompt.index(self.mask_token_id)} is {self.mask_token_id}, the "
                f"reserved token that stands for undecided positions; remove the mask token from "
                f"the prompt",
                parameter="prompt",
            )
        room = self.max_model_len - len(prompt)
        length = room if params.max_tokens is None else min(params.max_tokens, room)
        try:
            self.options.check_length(self._request_options(params), length)
        except OptionError as error:
            raise VLLMValidationError(str(error), parameter=error.name) from error

    def _request_options(self, params: SamplingParams) -> RequestOptions:
        extra_args = params.extra_args or {}
        try:
            if RESUME_NFE_KEY in extra_args:
                # Without this it would pass: the scheduler adds the key on its way to the worker.
                allowed = "no request option; it is set by the scheduler"
                raise OptionError(RESUME_NFE_KEY, extra_args[RESUME_NFE_KEY], allowed)
            return self.options.request_options(extra_args)
        except OptionError as error:
            raise VLLMValidationError(str(error), parameter=error.name) from error
