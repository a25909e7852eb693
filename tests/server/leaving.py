"""A client that goes away in the middle of its answer."""

import time

import httpx

from tests.server.client import SECONDS, Client

ONE_BY_ONE = {"decoding": "low_confidence"}


def leave_a_stream(client: Client) -> None:
    """Its request ends and holds nothing; the server serves the next one."""
    before = client.metric("vllm:generation_tokens_total")
    body = {"model": client.model, "prompt": [70, 71, 72], "temperature": 0, "stream": True}
    body |= {"max_tokens": 250, "ignore_eos": True, "vllm_xargs": ONE_BY_ONE}
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
