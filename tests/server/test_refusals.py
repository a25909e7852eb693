"""Requests that cannot be served get a 400 that says why, and the server goes on serving."""

from typing import Any

import pytest

from tests.server.client import Client

PROMPT = [70, 71, 72]
MASK = "<|mdm_mask|>"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}


def user(content: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


OPTIONS = {
    "unknown key": ({"blok_length": 8}, ["blok_length", "8", "block_length"]),
    "out of range": ({"threshold": 2}, ["threshold", "2", "at least 0.0 and at most 1.0"]),
    "wrong type": ({"threshold": "high"}, ["threshold", "'high'", "a number"]),
    "not whole": ({"block_length": 2.5}, ["block_length", "2.5", "a whole number"]),
    "unknown choice": ({"decoding": "greedy"}, ["decoding", "'greedy'", "'low_confidence'"]),
    "block beyond the server's": ({"block_length": 32}, ["block_length", "32", "at most 16"]),
    "block beyond the window": (
        {"block_length": 129, "decoding": "threshold"},
        ["block_length", "129", "at most the server's window (128)"],
    ),
    "an engine's option": ({"window": 64}, ["window", "64", "no request option"]),
    "a list": ({"threshold": [0.5]}, ["threshold", "[0.5]", "a number"]),
    "the scheduler's key": ({"remix_resume_nfe": 3}, ["remix_resume_nfe", "3"]),
}

PARAMETERS = {
    "temperature": ({"temperature": 0.7}, ["temperature=0.7", "0 or 1"]),
    "top_p": ({"top_p": 0.5}, ["top_p=0.5", "allowed is 1"]),
    "top_k": ({"top_k": 5}, ["top_k=5", "0 or -1"]),
    "min_p": ({"min_p": 0.1}, ["min_p=0.1"]),
    "repetition_penalty": ({"repetition_penalty": 1.2}, ["repetition_penalty=1.2"]),
    "presence_penalty": ({"presence_penalty": 0.5}, ["presence_penalty=0.5"]),
    "seed": ({"seed": 7}, ["seed=7"]),
    "n": ({"n": 2}, ["n=2", "allowed is 1"]),
    "n at temperature 0": ({"n": 2, "temperature": 0}, ["n must be 1", "2"]),
    "min_tokens": ({"min_tokens": 3}, ["min_tokens=3"]),
    "logit_bias": ({"logit_bias": {"70": 5}}, ["logit_bias"]),
    "logit_bias beyond the vocabulary": ({"logit_bias": {"9999": 5}}, ["logit_bias"]),
    "allowed_token_ids": ({"allowed_token_ids": [70]}, ["allowed_token_ids"]),
    "bad_words": ({"bad_words": ["a"]}, ["bad_words"]),
    "json_schema": ({"response_format": SCHEMA}, ["structured"]),
    "stop ids beyond the vocabulary": ({"stop_token_ids": [99999]}, ["stop_token_ids", "99999"]),
    "negative stop ids": ({"stop_token_ids": [-1]}, ["stop_token_ids", "-1"]),
    "max_tokens -1": ({"max_tokens": -1}, ["max_tokens"]),
    "max_tokens beyond the context": ({"max_tokens": 100000}, ["max_tokens", "100000", "256"]),
}

PROMPTS = {
    "mask in a chat": ("chat/completions", user(f"what is {MASK}?"), ["reserved token"]),
    "mask in a text": ("completions", {"prompt": f"what is {MASK}?"}, ["reserved token"]),
    "empty text": ("completions", {"prompt": ""}, ["empty"]),
    "no prompt": ("completions", {"prompt": []}, ["at least one prompt"]),
    "empty ids": ("completions", {"prompt": [[]]}, ["empty"]),
    "empty chat": ("chat/completions", user(""), ["empty or only whitespace"]),
    "whitespace chat": ("chat/completions", user(" \n\t "), ["empty or only whitespace"]),
    "no messages": ("chat/completions", {"messages": []}, ["messages"]),
    "too many ids": ("completions", {"prompt": [70] * 257}, ["256"]),
    "no room": ("completions", {"prompt": [70] * 256}, ["max_tokens must be at least 1", "0"]),
    "too long a chat": ("chat/completions", user("1 2 3 4 " * 100), ["256"]),
}


def assert_refused(client: Client, path: str, body: dict[str, Any], parts: list[str]) -> None:
    response = client.post(path, **{"max_tokens": 8} | body)
    assert response.status_code == 400, response.text
    message = response.json()["error"]["message"]
    assert all(part in message for part in parts), message
    client.assert_serving()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", OPTIONS)
def test_an_option(client: Client, case: str, stream: bool) -> None:
    options, parts = OPTIONS[case]
    body = {"prompt": PROMPT, "vllm_xargs": options, "stream": stream}
    assert_refused(client, "completions", body, parts)


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_sampling_parameter(client: Client, case: str) -> None:
    parameters, parts = PARAMETERS[case]
    assert_refused(client, "completions", {"prompt": PROMPT} | parameters, parts)


@pytest.mark.parametrize("body", [{"logprobs": True}, {"logprobs": True, "top_logprobs": 2}])
def test_logprobs_of_a_chat(client: Client, body: dict[str, Any]) -> None:
    assert_refused(client, "chat/completions", user("hello") | body, ["logprobs"])


def test_logprobs_of_a_completion(client: Client) -> None:
    assert_refused(client, "completions", {"prompt": PROMPT, "logprobs": 1}, ["logprobs=1"])


@pytest.mark.parametrize("stream", [False, True])
def test_the_mask_among_raw_ids(client: Client, stream: bool) -> None:
    """https://github.com/sgl-project/sglang/issues/35998, without any text."""
    body = {"prompt": [70, client.oracle.mask_token_id, 71], "stream": stream}
    assert_refused(client, "completions", body, ["prompt token 1", "reserved token"])


def test_an_id_beyond_the_vocabulary(client: Client) -> None:
    """vLLM's own check, which in a stream comes as its only event."""
    assert_refused(client, "completions", {"prompt": [70, 99999]}, ["99999"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("case", PROMPTS)
def test_a_prompt(client: Client, case: str, stream: bool) -> None:
    """https://github.com/sgl-project/sglang/issues/35998 and
    https://github.com/vllm-project/vllm/issues/7283, over HTTP."""
    path, body, parts = PROMPTS[case]
    assert_refused(client, path, body | {"stream": stream}, parts)
