"""A streamed request that is refused gets a 400, as one that is not streamed does.

Symptom     With `"stream": true` a request that the guard refuses is answered with status 200 and a
            stream whose only event is the error. Clients that look at the status take it for an
            empty answer.
Mechanism   `AsyncLLM.generate` is an asynchronous generator: nothing of it runs before its first
            item is asked for, and a streamed response has begun by then. It becomes a function that
            asks the guard and returns the generator; API servers call it before they respond.
            The guard is asked again in `InputProcessor`, which also serves everything else.
Upstream    `vllm/v1/engine/async_llm.py`, `vllm/entrypoints/openai/*/serving.py`.
Delete when vLLM validates a request before its response begins.
"""

import functools
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vllm.outputs import RequestOutput
    from vllm.v1.engine.async_llm import AsyncLLM


@functools.cache
def apply() -> None:
    """Called in front ends of served models only: workers need not import what this does."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

    stock = AsyncLLM.generate

    @functools.wraps(stock)
    def generate(
        self: "AsyncLLM", prompt: Any, sampling_params: Any, *args: Any, **kwargs: Any
    ) -> "AsyncGenerator[RequestOutput, None]":
        guard = self.input_processor.remix_guard
        if guard is not None and isinstance(sampling_params, SamplingParams):
            guard.check_params(sampling_params)
            if isinstance(prompt, dict) and prompt.get("prompt_token_ids") is not None:
                guard.check_prompt(prompt["prompt_token_ids"], sampling_params)
        return stock(self, prompt, sampling_params, *args, **kwargs)

    AsyncLLM.generate = generate
