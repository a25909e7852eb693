"""A client that leaves two ranks; how a server ends of a killed rank, and of SIGTERM."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from benchmarks.server import vllm_serve
from tests.distributed.faults import assert_ends, streaming
from tests.models.oracle import Oracle
from tests.server.client import Client
from tests.server.leaving import leave_a_stream

pytestmark = pytest.mark.slow

MODEL_NAME = "tiny"
ARGUMENTS = [
    *("--served-model-name", MODEL_NAME, "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "256", "--max-num-seqs", "8", "--kv-cache-memory-bytes", "256M"),
]
TWO_RANKS = ["--tensor-parallel-size", "2"]
# So many that the signal comes first, and so few that a busy machine does them in time.
STEPS_OF_A_DRAIN = 60
ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def test_two_ranks_let_go_of_a_client_that_leaves_and_end_if_one_is_killed(
    shipped_model: Path, oracle: Oracle
) -> None:
    """One server: the slot of an aborted request is free on both ranks, or the next answer would
    not be the oracle's."""
    with vllm_serve(shipped_model, [*ARGUMENTS, *TWO_RANKS], ENVIRONMENT) as server:
        leave_a_stream(Client(server.url, MODEL_NAME, {}, oracle))
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


@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param([], id="one rank"),
        pytest.param(TWO_RANKS, id="two ranks", marks=pytest.mark.matrix),
    ],
)
def test_sigterm_lets_requests_finish(shipped_model: Path, ranks: list[str]) -> None:
    """Stock vLLM 0.32 kills its engine and waits for the stream, which nobody continues:
    docs/operations.md."""
    with vllm_serve(shipped_model, [*ARGUMENTS, *ranks], ENVIRONMENT) as server:
        with streaming(server.url, MODEL_NAME, STEPS_OF_A_DRAIN) as stream:
            os.kill(server.process_id, signal.SIGTERM)
        assert not stream.failed
        assert_ends(server.process_id)
