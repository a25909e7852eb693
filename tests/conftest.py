"""Engines shared between tests: starting one costs seconds, so each configuration starts once."""

import os

# Before anything imports vLLM. In-process engines start in a fraction of the time, and let tests
# look # at the scheduler and the model state.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.engines import EngineSpec, start_engine
from tests.models.oracle import Oracle

ASSETS = Path(__file__).parent.parent / "remix_vllm" / "assets"


@pytest.fixture(scope="session")
def shipped_model() -> Path:
    """The checkpoint that the package ships."""
    return ASSETS / "tiny-llada"


@pytest.fixture(scope="session")
def oracle(shipped_model: Path) -> Oracle:
    return Oracle.load(shipped_model)


@pytest.fixture(scope="session")
def engine(shipped_model: Path) -> Iterator[Callable[..., object]]:
    """``engine(**kwargs)``: an ``LLM`` on the shipped model with these arguments, started once a
    session."""
    started: dict[EngineSpec, object] = {}

    def get(**kwargs: object) -> object:
        spec = EngineSpec.of(shipped_model, kwargs)
        if spec not in started:
            started[spec] = start_engine(spec)
        return started[spec]

    yield get
    started.clear()
