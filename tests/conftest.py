"""Engines shared between tests: starting one costs seconds, so each configuration starts once."""

import os

# Before anything imports vLLM. In-process engines start in a fraction of the time, and let tests
# look # at the scheduler and the model state.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.models.engines import EngineSpec, start_engine
from tests.models.mock_engine import mock_config
from tests.models.oracle import Oracle
from tests.models.policies import Policy

# The same examples in every run: a red run must be red again.
settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")

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


@pytest.fixture(scope="session")
def tiny_checkpoints(
    tmp_path_factory: pytest.TempPathFactory, shipped_model: Path
) -> Callable[[int | None], Path]:
    """A folder that holds only what a configuration is made from: for an SDAR model of this block
    length, or for LLaDA (None)."""

    def folder(block_length: int | None) -> Path:
        if block_length is None:
            return shipped_model
        path = tmp_path_factory.mktemp(f"sdar{block_length}")
        config = {
            "architectures": ["SDARForCausalLM"],
            "model_type": "sdar",
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "intermediate_size": 16,
            "vocab_size": 24,
            "max_position_embeddings": 512,
            "block_size": block_length,
            "mask_token_id": 20,
            "rope_theta": 1e6,
            "rms_norm_eps": 1e-6,
        }
        (path / "config.json").write_text(json.dumps(config))
        return path

    return folder


@pytest.fixture(scope="session")
def mock_configs(tiny_checkpoints: Callable[[int | None], Path]) -> Callable[..., object]:
    """``mock_configs(policy, **arguments)``: a configuration for the mock engine, made once a
    session."""
    made: dict[str, object] = {}

    def get(policy: Policy, **arguments: object) -> object:
        key = repr((policy, sorted(arguments.items())))
        if key not in made:
            checkpoint = tiny_checkpoints(policy.checkpoint_block)
            made[key] = mock_config(checkpoint, policy.settings, **arguments)
        return made[key]

    return get


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Distributed tests last: an engine over two processes that ends takes down the process groups
    of this process too (``EngineCore.shutdown``), in which the shared engines run."""
    items.sort(key=lambda item: "distributed" in item.path.parts)
