"""C20 over HTTP: a request whose logits are NaN gets status 500, requests beside it their answers.

The server has one API-server process, whose metrics live in that process alone.
"""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.server import vllm_serve
from tests.models.oracle import Oracle
from tests.server.client import Client

POISON = 801
SETTINGS = {"decoding": "threshold", "threshold": 0.6, "block_length": 16}


@pytest.fixture
def poisoned(shipped_model: Path, tmp_path: Path, oracle: Oracle) -> Iterator[Client]:
    """A server of the shipped model whose embedding of one token is NaN. It does not mix, so that
    the token is fed by the prompts that hold it only."""
    model = tmp_path / "model"
    shutil.copytree(shipped_model, model)
    weights = load_file(model / "model.safetensors")
    weights["model.transformer.wte.weight"][POISON] = torch.nan
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    arguments = ["--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager"]
    arguments += ["--max-model-len", "256", "--max-num-seqs", "8", "--decoding", "threshold"]
    arguments += ["--kv-cache-memory-bytes", "64M"]
    arguments += ["--remix-config", '{"threshold": 0.6, "block_length": 16}']
    with vllm_serve(model, arguments) as running:
        yield Client(running.url, "tiny", SETTINGS, oracle)


@pytest.mark.slow
def test_it_is_answered_with_status_500_and_counted(poisoned: Client) -> None:
    bad = [*range(100, 120), POISON]
    good = [[70, 71, 72], [64, 220, 277], list(range(130, 160))]
    body = {"max_tokens": 20, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    with ThreadPoolExecutor(8) as pool:
        failing = [pool.submit(poisoned.post, "completions", prompt=bad, **body) for _ in range(3)]
        answered = [pool.submit(poisoned.post, "completions", prompt=p, **body) for p in good]
    for response in failing:
        assert response.result().status_code == 500
        assert response.result().json()["error"]["code"] == 500
    for prompt, response in zip(good, answered, strict=True):
        expected = poisoned.expected(prompt, 20, ignore_eos=True)
        answer = response.result().json()
        assert answer["choices"][0]["token_ids"] == expected.token_ids
    # Pages and slots of the failed ones are used again.
    poisoned.assert_serving()
    assert poisoned.metric("vllm:remix_corrupt_requests_total") == 3
    assert poisoned.metric("vllm:remix_request_nfe_count") == len(good) + 1
