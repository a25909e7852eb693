"""What is served over HTTP is what the oracle says: tokens, forwards, text and usage."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from remix_vllm.config import EngineOptions
from tests.server.client import Client, Reply

OPTIONS: list[dict[str, Any]] = [
    {},
    {"threshold": 0.9, "block_length": 8},
    {"decoding": "low_confidence"},
    {"preset": "paper", "js_threshold": 0.05},
]
QUESTIONS = ["what is 12 + 30?", "a", "Tom has 3 apples and buys 4. How many?", "hello there"]


def chat_ids(tokenizer: PreTrainedTokenizerBase, content: str) -> list[int]:
    messages = [{"role": "user", "content": content}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids


def check(
    client: Client,
    tokenizer: PreTrainedTokenizerBase,
    reply: Reply,
    prompt_ids: list[int],
    max_tokens: int,
    options: dict[str, Any],
) -> None:
    expected = client.expected(prompt_ids, max_tokens, options)
    assert reply.token_ids == expected.token_ids
    assert reply.nfe == expected.nfe
    assert reply.text == tokenizer.decode(expected.token_ids, skip_special_tokens=True)
    assert reply.prompt_tokens == len(prompt_ids)
    assert reply.completion_tokens == len(expected.token_ids)
    stopped = expected.token_ids[-1] in client.oracle.stop_token_ids
    assert reply.finish_reason == ("stop" if stopped else "length")


def test_sixteen_concurrent_clients_get_the_oracles_answers(
    client: Client, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Chat and completions, streamed and not, each of them with every set of options."""
    requests = list(itertools.product(["chat", "complete"], [False, True], range(4)))

    def ask(request: tuple[str, bool, int]) -> Reply:
        kind, stream, i = request
        prompt: Any = QUESTIONS[i]
        if kind == "complete":
            prompt = tokenizer(prompt).input_ids
        return getattr(client, kind)(prompt, 20 + i, stream, vllm_xargs=OPTIONS[i])

    with ThreadPoolExecutor(len(requests)) as pool:
        replies = list(pool.map(ask, requests))
    for (kind, stream, i), reply in zip(requests, replies, strict=True):
        ids = tokenizer(QUESTIONS[i]).input_ids
        if kind == "chat":
            ids = chat_ids(tokenizer, QUESTIONS[i])
        check(client, tokenizer, reply, ids, 20 + i, OPTIONS[i])
        assert stream or len(reply.deltas) == 1


def test_options_of_the_config_file_reach_every_process(client: Client) -> None:
    """Each request has a connection of its own: the kernel spreads them over the API servers."""
    prompt, max_tokens = [64, 220, 277], 40
    expected = client.expected(prompt, max_tokens, ignore_eos=True)
    by_default = client.oracle.generate(
        prompt, max_tokens, None, EngineOptions.parse(None, 128), ignore_eos=True
    )
    assert (expected.token_ids, expected.nfe) != (by_default.token_ids, by_default.nfe)
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    for _ in range(12):
        answer = client.post("completions", return_token_ids=True, **body).json()
        assert answer["choices"][0]["token_ids"] == expected.token_ids
        assert answer["metrics"]["speculative_decoding"]["num_spec_steps"] == expected.nfe
        # The API server checks requests itself, and must know the engine's options for it.
        refused = client.post("completions", vllm_xargs={"block_length": 17}, **body)
        assert refused.status_code == 400
        assert "at most 16, the server's block_length" in refused.text


def test_a_temperature_that_is_not_given_is_greedy(client: Client) -> None:
    prompt = [70, 71, 72]
    expected = client.expected(prompt, 12)
    body = {"prompt": prompt, "max_tokens": 12}
    answer = client.post("completions", return_token_ids=True, **body).json()
    assert answer["choices"][0]["token_ids"] == expected.token_ids


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("max_tokens", [1, 15, 17, 35, 246])
def test_any_max_tokens_is_exact(client: Client, max_tokens: int, stream: bool) -> None:
    prompt = list(range(70, 80))
    reply = client.complete(prompt, max_tokens, stream, ignore_eos=True)
    assert reply.token_ids == client.expected(prompt, max_tokens, ignore_eos=True).token_ids
    assert len(reply.token_ids) == reply.completion_tokens == max_tokens
    assert reply.finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_before_it(
    client: Client, tokenizer: PreTrainedTokenizerBase, stream: bool
) -> None:
    texts = {
        question: tokenizer.decode(
            client.expected(tokenizer(question).input_ids, 24, ignore_eos=True).token_ids,
            skip_special_tokens=True,
        )
        for question in QUESTIONS
    }
    question, text = max(texts.items(), key=lambda item: len(item[1]))
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    reply = client.complete(question, 24, stream, ignore_eos=True, stop=[stop])
    assert reply.text == text[: text.index(stop)]
    assert reply.finish_reason == "stop"
