"""`examples/ray_serve_llm.py`: Ray Serve's LLM integration on two ranks, against the oracle.

What it needs beyond the project is not installed by `make test`: see docs/operations.md.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.distributed.ray_cluster import free_port, ray_cluster
from tests.models.oracle import Oracle
from tests.server.client import SECONDS, Client

pytest.importorskip("pyarrow", reason="ray.serve.llm needs it")
pytest.importorskip("opencensus", reason="ray[serve] is not installed")

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def client(
    shipped_model: Path, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Client]:
    import ray
    from ray import serve

    from examples.ray_serve_llm import NAME, REMIX, app

    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    port = free_port()
    # A CPU each for the model's replica and the ingress.
    with ray_cluster([(3, {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"})]) as address:
        ray.init(address=address, log_to_driver=False)
        try:
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            serve.run(app({"model": str(shipped_model), "ranks": "2", "device": "cpu"}))
            yield Client(f"http://127.0.0.1:{port}", NAME, REMIX, oracle)
        finally:
            serve.shutdown()
            ray.shutdown()


def test_the_example_serves_remix(client: Client) -> None:
    assert httpx.get(f"{client.url}/-/healthz", timeout=SECONDS).status_code == 200
    for prompt, options in (
        ([70, 71, 72], {}),
        ([64, 220, 277], {"decoding": "threshold", "threshold": 0.6, "block_length": 16}),
    ):
        expected = client.expected(prompt, 40, options)
        for stream in (False, True):
            reply = client.complete(prompt, 40, stream, vllm_xargs=options)
            assert (reply.token_ids, reply.nfe) == (expected.token_ids, expected.nfe)
    refused = client.post("completions", prompt=[70], max_tokens=4, vllm_xargs={"threshold": 2})
    assert refused.status_code == 400
    assert "threshold=2" in refused.text
