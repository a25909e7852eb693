"""A compiled engine: the model through vLLM's `torch.compile`, the statistics through
TorchInductor."""

from typing import Any

import pytest

from tests.engine.test_exactness import mixed_requests
from tests.models.engines import Answer, ask
from tests.models.oracle import Oracle

pytestmark = pytest.mark.slow


def test_a_compiled_engine_equals_the_oracle(engine: Any, oracle: Oracle) -> None:
    from vllm.config import CompilationMode

    llm = engine(enforce_eager=False)
    core = llm.llm_engine.engine_core.engine_core
    assert core.vllm_config.compilation_config.mode != CompilationMode.NONE
    requests = mixed_requests(12, seed=44)
    for (prompt, length, options), answer in zip(requests, ask(llm, requests), strict=True):
        expected = oracle.generate(prompt, length, options)
        assert answer == Answer(expected.token_ids, expected.nfe), options
    runner = core.model_executor.driver_worker.worker.model_runner
    assert runner.model_state.limits.passes._kernels._compiled
