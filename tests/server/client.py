"""Requests to the server under test, and what the oracle says to them."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
from openai import OpenAI

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.generation import Generation
from tests.models.oracle import Oracle

SECONDS = 120
Prompt = str | list[int]


@dataclass
class Reply:
    """One response, put together from its chunks if it was streamed."""

    token_ids: list[int] = field(default_factory=list)
    deltas: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    nfe: int | None = None
    """None if vLLM does not tell: for a request that ended at a stop string."""

    @property
    def text(self) -> str:
        return "".join(self.deltas)


class Client:
    """Asks a server through the ``openai`` client, and over plain HTTP what that would refuse."""

    def __init__(self, url: str, model: str, remix_config: dict[str, Any], oracle: Oracle) -> None:
        self.url = url
        self.model = model
        self.engine = EngineOptions.parse(remix_config, default_block_length=128)
        self.oracle = oracle
        self.openai = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=SECONDS)

    def expected(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        options: dict[str, Any] | None = None,
        ignore_eos: bool = False,
    ) -> Generation:
        """What the server must answer."""
        return self.oracle.generate(prompt_ids, max_tokens, options, self.engine, ignore_eos)

    def complete(
        self, prompt: Prompt, max_tokens: int, stream: bool = False, **extra: Any
    ) -> Reply:
        """A completion; ``extra`` goes into the request's body."""
        response = self.openai.completions.create(
            model=self.model, prompt=prompt, max_tokens=max_tokens, **_common(stream, extra)
        )
        return _read(response if stream else [response])

    def check_together(self, requests: list[tuple[list[int], int, dict[str, Any]]]) -> None:
        """Completions of (prompt ids, max_tokens, options), all under way at once, equal the
        oracle's in tokens and NFE."""
        with ThreadPoolExecutor(len(requests)) as pool:
            replies = pool.map(lambda r: self.complete(*r[:2], vllm_xargs=r[2]), requests)
            for (prompt, length, options), reply in zip(requests, replies, strict=True):
                expected = self.expected(prompt, length, options)
                assert (reply.token_ids, reply.nfe) == (expected.token_ids, expected.nfe), options

    def chat(self, content: str, max_tokens: int, stream: bool = False, **extra: Any) -> Reply:
        """A chat completion of one user message."""
        response = self.openai.chat.completions.create(
            model=self.model,
            messages=[{"role": "user", "content": content}],
            max_tokens=max_tokens,
            **_common(stream, extra),
        )
        return _read(response if stream else [response])

    def post(self, path: str, **body: Any) -> httpx.Response:
        return httpx.post(
            f"{self.url}/v1/{path}", json={"model": self.model} | body, timeout=SECONDS
        )

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        lines = httpx.get(f"{self.url}/metrics", timeout=SECONDS).text.splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{name}{{")]
        assert values, f"/metrics has no {name}"
        return sum(map(float, values))

    def assert_serving(self) -> None:
        """The server is healthy and answers the next request as the oracle does."""
        assert httpx.get(f"{self.url}/health", timeout=SECONDS).status_code == 200
        prompt = [64, 220, 277]
        assert self.complete(prompt, 6).token_ids == self.expected(prompt, 6).token_ids


def _common(stream: bool, extra: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "temperature": 0,
        "stream": stream,
        "extra_body": {"return_token_ids": True} | extra,
    }
    if stream:
        arguments["stream_options"] = {"include_usage": True}
    return arguments


def _read(chunks: Iterable[Any]) -> Reply:
    reply = Reply()
    for chunk in chunks:
        for choice in chunk.choices:
            reply.token_ids += (choice.model_extra or {}).get("token_ids") or []
            reply.finish_reason = choice.finish_reason or reply.finish_reason
            reply.deltas.append(_text(choice))
        if chunk.usage is not None:
            reply.prompt_tokens = chunk.usage.prompt_tokens
            reply.completion_tokens = chunk.usage.completion_tokens
            if metrics := (chunk.model_extra or {}).get("metrics"):
                reply.nfe = metrics["speculative_decoding"]["num_spec_steps"]
    return reply


def _text(choice: Any) -> str:
    if hasattr(choice, "text"):
        return choice.text
    message = choice.delta if hasattr(choice, "delta") else choice.message
    return message.content or ""
