"""One server for all tests: two API-server processes, options from a file, not the defaults."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from benchmarks.server import vllm_serve
from tests.models.oracle import Oracle
from tests.server.client import Client

MODEL_NAME = "tiny"
CONFIG: dict[str, Any] = {
    "decoding": "remix",
    "remix-config": {"block_length": 16, "threshold": 0.6, "window": 128},
    "api-server-count": 2,
    "served-model-name": MODEL_NAME,
    "dtype": "float32",
    "enforce-eager": True,
    "max-model-len": 256,
    "max-num-seqs": 32,
    "kv-cache-memory-bytes": 1 << 28,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Do not count the server's start, which has a limit of its own, as time of the first test."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(300, func_only=True))


@pytest.fixture(scope="session")
def tokenizer(shipped_model: Path) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(shipped_model)


@pytest.fixture(scope="session")
def server(shipped_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the server."""
    config = tmp_path_factory.mktemp("server") / "config.yaml"
    config.write_text(json.dumps(CONFIG))  # JSON is YAML.
    with vllm_serve(shipped_model, ["--config", str(config)]) as running:
        yield running.url


@pytest.fixture(scope="session")
def client(server: str, oracle: Oracle) -> Client:
    return Client(server, MODEL_NAME, CONFIG["remix-config"], oracle)
