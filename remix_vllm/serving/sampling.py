"""Which of vLLM's sampling parameters greedy decoding takes, and why others are refused."""

import reprlib
from collections.abc import Sized
from typing import Any

GREEDY_VALUES: dict[str, tuple[float, ...]] = {
    "temperature": (0.0, 1.0),
    "top_p": (1.0,),
    "top_k": (0, -1),
    "min_p": (0.0,),
    "repetition_penalty": (1.0,),
    "presence_penalty": (0.0,),
    "frequency_penalty": (0.0,),
    "n": (1,),
    "min_tokens": (0,),
}
"""Accepted values. Temperature 1 is vLLM's default, which nothing tells from a 1 that was given: it
is taken as not given. Every other value would be ignored, so it is refused."""

NOT_GIVEN: tuple[str, ...] = (
    "seed",
    "logprobs",
    "logprob_token_ids",
    "prompt_logprobs",
    "prompt_logprob_token_ids",
    "structured_outputs",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "thinking_token_budget",
    "repetition_detection",
    "trace_decode_token_ids",
)
"""Parameters that must be left out (or empty)."""

ASKED_FOR_BY: dict[str, str] = {
    "logprobs": "beam search",
    "structured_outputs": "response_format, or a tool that must be called",
}
"""What a client may have asked for instead of the parameter itself."""


def refusal(name: str, value: Any) -> str | None:
    """Why ``value`` is refused for the sampling parameter ``name``; None if it is accepted."""
    if name in GREEDY_VALUES:
        accepted = GREEDY_VALUES[name]
        if value in accepted:
            return None
        listed = " or ".join(f"{number:g}" for number in accepted)
        return f"{name}={value!r}: not supported, ReMix decoding is greedy; allowed is {listed}"
    if value is None or (isinstance(value, Sized) and len(value) == 0):
        return None
    implied = f" ({ASKED_FOR_BY[name]} asks for it too)" if name in ASKED_FOR_BY else ""
    return f"{name}={reprlib.repr(value)}: not supported with ReMix decoding; leave it out{implied}"
