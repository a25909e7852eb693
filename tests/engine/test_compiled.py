"""A compiled engine: the model through vLLM's `torch.compile`, the statistics through
TorchInductor."""

from typing import Any

import pytest

from tests.engine.test_exactness import mixed_requests
from tests.models.engines import ask
from tests.models.oracle import Oracle
from tests.models.runner import model_runner

pytestmark = pytest.mark.slow


def test_a_compiled_engine_equals_the_oracle(engine: Any, oracle: Oracle) -> None:
    from vllm.config import CompilationMode

    llm = engine(enforce_eager=False)
    runner = model_runner(llm)
    assert runner.vllm_config.compilation_config.mode != CompilationMode.NONE
    requests = mixed_requests(12, seed=44)
    oracle.check(requests, ask(llm, requests))
    assert runner.model_state.limits.passes._kernels._compiled
