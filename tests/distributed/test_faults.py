"""How a server ends: of a killed rank, and of SIGTERM, with a request under way."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from benchmarks.server import vllm_serve
from tests.distributed.faults import assert_ends, streaming

pytestmark = pytest.mark.slow

MODEL_NAME = "tiny"
ARGUMENTS = [
    *("--served-model-name", MODEL_NAME, "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "256", "--max-num-seqs", "8", "--kv-cache-memory-bytes", "256M"),
]
TWO_RANKS = ["--tensor-parallel-size", "2"]
ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def test_a_killed_rank_ends_the_server_and_its_requests(shipped_model: Path) -> None:
    with vllm_serve(shipped_model, [*ARGUMENTS, *TWO_RANKS], ENVIRONMENT) as server:
        workers = [
            process
            for process in psutil.Process(server.process_id).children(recursive=True)
            if "Worker_TP1" in " ".join(process.cmdline())
        ]
        assert len(workers) == 1
        with streaming(server.url, MODEL_NAME) as stream:
            os.kill(workers[0].pid, signal.SIGKILL)
        assert stream.failed
        assert_ends(server.process_id)


def test_sigterm_lets_requests_finish_if_the_operator_says_so(shipped_model: Path) -> None:
    """Without ``--shutdown-timeout`` vLLM 0.32 kills its engine and waits for the stream, which
    nobody continues: docs/operations.md."""
    arguments = [*ARGUMENTS, "--shutdown-timeout", "60"]
    with vllm_serve(shipped_model, arguments, ENVIRONMENT) as server:
        with streaming(server.url, MODEL_NAME) as stream:
            os.kill(server.process_id, signal.SIGTERM)
        assert not stream.failed
        assert_ends(server.process_id)
