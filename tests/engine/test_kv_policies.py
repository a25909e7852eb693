"""``prefix`` and ``dual`` against an oracle that makes the same approximation: same tokens, same
NFE."""

from typing import Any

import pytest

from remix_vllm.config import EngineOptions
from tests.engine.test_exactness import mixed_requests
from tests.models.cached_llada import CachedReference
from tests.models.engines import ask

SETTINGS = [
    {"kv_cache": "prefix", "block_length": 8},
    {"kv_cache": "dual", "block_length": 8},
    {"kv_cache": "dual", "block_length": 8, "window": 24, "refresh_interval": 3},
]


def without_whole_region(count: int, seed: int) -> list[tuple[list[int], int, dict[str, Any]]]:
    """Mixed requests, less those whose decisions need positions outside the active block."""
    return [
        (prompt, length, {k: min(v, 8) if k == "block_length" else v for k, v in options.items()})
        for prompt, length, options in mixed_requests(count, seed)
        if options.get("preset") != "official"
    ]


@pytest.mark.parametrize("async_scheduling", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: "-".join(map(str, s.values())))
def test_a_batch_equals_the_oracle_of_the_same_approximation(
    engine: Any, oracle: Any, settings: dict[str, Any], async_scheduling: bool
) -> None:
    llm = engine(async_scheduling=async_scheduling, additional_config={"remix": settings})
    requests = without_whole_region(24, seed=11)

    def approximation() -> CachedReference:
        return CachedReference(
            oracle.model.model, settings["kv_cache"], settings.get("refresh_interval", 0)
        )

    defaults = EngineOptions.parse(settings, 128)
    oracle.check(requests, ask(llm, requests), defaults, make_model=approximation)


def test_refreshing_every_step_is_exact(oracle: Any) -> None:
    """The approximate oracle itself, against the exact one."""
    defaults = EngineOptions.parse({"kv_cache": "prefix", "block_length": 8}, 128)
    for prompt, length, options in without_whole_region(6, seed=12):
        model = CachedReference(oracle.model.model, "prefix", refresh_interval=1)
        approximate = oracle.generate(prompt, length, options, defaults, model=model)
        assert approximate == oracle.generate(prompt, length, options, defaults)
