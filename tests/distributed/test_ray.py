"""``vllm serve`` with two tensor-parallel ranks on a Ray cluster of two nodes, both this machine.

Two nodes, so the ranks share no memory, and each is asked for the plugin.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.server import Server, vllm_serve
from tests.distributed.faults import assert_ends, streaming
from tests.distributed.process_report import EXTENSION, check_reports
from tests.engine.test_exactness import mixed_requests
from tests.models.oracle import Oracle
from tests.server.client import SECONDS, Client

pytestmark = [pytest.mark.ray, pytest.mark.slow]

MODEL_NAME = "tiny"
NODES = 4
REMIX = {"block_length": 16, "threshold": 0.6}
ARGUMENTS = [
    *("--remix-config", json.dumps(REMIX)),
    *("--tensor-parallel-size", "2", "--distributed-executor-backend", "ray"),
    *("--served-model-name", MODEL_NAME, "--dtype", "float32", "--enforce-eager"),
    *("--worker-extension-cls", EXTENSION),
    *("--max-model-len", "256", "--max-num-seqs", "32", "--kv-cache-memory-bytes", "256M"),
]


@pytest.fixture(scope="module")
def server(cluster: str, shipped_model: Path) -> Iterator[Server]:
    environment = {"RAY_ADDRESS": cluster, "PYTHONPATH": str(Path(__file__).parents[2])}
    # For `/collective_rpc`.
    environment["VLLM_SERVER_DEV_MODE"] = "1"
    with vllm_serve(shipped_model, ARGUMENTS, environment) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server, oracle: Oracle) -> Client:
    return Client(server.url, MODEL_NAME, REMIX, oracle)


def report(client: Client) -> list[dict[str, object]]:
    response = httpx.post(
        f"{client.url}/collective_rpc", json={"method": "report"}, timeout=SECONDS
    )
    return response.json()["results"]


def test_nodes_that_lack_the_plugin_are_named(cluster: str) -> None:
    import ray

    from remix_vllm.engine.ray_executor import check_nodes

    ray.init(address=cluster, log_to_driver=False)
    try:
        deadline = time.monotonic() + SECONDS
        while len(ray.nodes()) < NODES and time.monotonic() < deadline:
            time.sleep(0.2)
        nodes = {node["NodeID"]: node["NodeID"] for node in ray.nodes()}
        with pytest.raises(RuntimeError) as error:
            check_nodes(nodes)
        ready = {name: name for name in nodes if f"node {name} has" not in str(error.value)}
        check_nodes(ready)
    finally:
        ray.shutdown()
    assert len(nodes) == NODES
    assert len(ready) == 2
    assert str(error.value).count(" has 9.9.9") == 1
    assert str(error.value).count(" has none") == 1


def test_mixed_requests_equal_the_oracle(client: Client) -> None:
    client.check_together(
        [
            (prompt, length, options)
            for prompt, length, options in mixed_requests(30, seed=31)
            if options.get("preset") != "official" and options.get("block_length", 0) <= 16
        ]
    )


def test_every_worker_found_the_plugin_and_has_the_drivers_options(client: Client) -> None:
    check_reports(report(client), ranks=2)


def test_a_killed_worker_ends_the_server_and_its_requests(server: Server, client: Client) -> None:
    """The last test: it leaves no server."""
    victim = report(client)[1]["process"]
    with streaming(server.url, MODEL_NAME) as stream:
        os.kill(victim, signal.SIGKILL)
    assert stream.failed
    assert_ends(server.process_id)
