"""``--data-parallel-size 2``: two engines behind one API server, each on its own (vLLM treats ranks
of dense models so: `tests/upstream/test_data_parallel.py`)."""

from pathlib import Path

import httpx
import pytest

from benchmarks.server import vllm_serve
from tests.distributed.test_faults import ARGUMENTS, ENVIRONMENT, MODEL_NAME
from tests.engine.test_exactness import mixed_requests
from tests.models.oracle import Oracle
from tests.server.client import SECONDS, Client

pytestmark = pytest.mark.slow

TWO_ENGINES = ["--data-parallel-size", "2", "--api-server-count", "1"]


def test_both_engines_answer_as_the_oracle_does(shipped_model: Path, oracle: Oracle) -> None:
    requests = [r for r in mixed_requests(30, seed=51) if r[2].get("preset") != "official"]
    with vllm_serve(shipped_model, [*ARGUMENTS, *TWO_ENGINES], ENVIRONMENT) as server:
        Client(server.url, MODEL_NAME, {}, oracle).check_together(requests)
        metrics = httpx.get(f"{server.url}/metrics", timeout=SECONDS).text.splitlines()
    tokens = [line for line in metrics if line.startswith("vllm:generation_tokens_total{")]
    assert len(tokens) == 2
    assert all(float(line.rpartition(" ")[2]) > 0 for line in tokens)
