"""A client that goes away in the middle of its answer."""

import time
from typing import Any

import httpx

from tests.server.client import SECONDS, Client


def long_stream(model: str, max_tokens: int) -> dict[str, Any]:
    """Body of a request for a streamed completion that takes a step for each token."""
    body = {"model": model, "prompt": [70, 71, 72], "temperature": 0, "stream": True}
    options = {"decoding": "low_confidence"}
    return body | {"max_tokens": max_tokens, "ignore_eos": True, "vllm_xargs": options}


def leave_a_stream(client: Client) -> None:
    """Its request ends and holds nothing; the server serves the next one."""
    before = client.metric("vllm:generation_tokens_total")
    body = long_stream(client.model, 250)
    with httpx.stream(
        "POST", f"{client.url}/v1/completions", json=body, timeout=SECONDS
    ) as response:
        assert response.status_code == 200
        first = next(response.iter_lines())
    assert first.startswith("data: ")

    deadline = time.monotonic() + SECONDS
    while client.metric("vllm:num_requests_running") > 0:
        assert time.monotonic() < deadline, "the aborted request is still running"
        time.sleep(0.1)
    assert client.metric("vllm:generation_tokens_total") - before < 250
    assert client.metric("vllm:kv_cache_usage_perc") == 0
    client.assert_serving()
