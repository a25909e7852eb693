"""The model runner of an in-process engine."""

from typing import Any


def model_runner(llm: Any) -> Any:
    """The only worker's runner: it has the model, the model state and the KV pages."""
    core = llm.llm_engine.engine_core.engine_core
    return core.model_executor.driver_worker.worker.model_runner
