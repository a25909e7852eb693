"""Data-parallel ranks of a dense model are engines of their own.

Ranks of a mixture of experts run in step, with dummy batches for those that idle, whose shape vLLM
computes from the tokens a decode samples: here that is 0. A family of such models has to refuse
data parallelism or show that it works.
"""

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from vllm.v1.engine.core import EngineCoreProc

from tests.upstream.configs import make_config


def test_vllm_still_runs_ranks_of_dense_models_on_their_own() -> None:
    source = inspect.getsource(EngineCoreProc.run_engine_core)
    lines = [line.strip() for line in source.splitlines() if not line.strip().startswith("#")]
    branch = lines.index("if data_parallel and vllm_config.model_config.is_moe:")
    after = lines.index("else:", branch)
    assert lines[after + 1] == "parallel_config.reconfigure_for_independent_dp_rank()"


@pytest.mark.parametrize("block_length", [None, 4], ids=["llada", "sdar"])
def test_served_models_are_dense(
    tiny_checkpoints: Callable[[int | None], Path], block_length: int | None
) -> None:
    config = make_config(tiny_checkpoints(block_length), data_parallel_size=2)
    assert config.parallel_config.data_parallel_size == 2
    assert not config.model_config.is_moe
