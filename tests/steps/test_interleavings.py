"""Random arrivals, aborts and preemptions against the real scheduler: outputs equal the
oracle's."""

from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from remix_vllm.decoding import step
from tests.models.mock_run import MockRun
from tests.models.policies import PAGE, POLICIES, Policy, ToyRequest

BLOCK32 = Policy("block32", {"kv_cache": "block", "block_length": 32})


def random_request(rng: Random, policy: Policy, model_seed: int) -> ToyRequest:
    # Requests share pages only if they share a model; without sharing each has its own.
    seed = model_seed if policy.block_causal else rng.randrange(1000)
    shared = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3] * 3
    prompt = [rng.randrange(20) for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.5:
        # Shared beginnings, for the prefix cache.
        prompt = shared[: rng.choice([7, 16, 33, 40])] + prompt
    options: dict[str, Any] = rng.choice(
        [
            {},
            {"decoding": "low_confidence"},
            {"threshold": 0.3},
            {"max_nfe": 12},
            {"js_threshold": 0.0},
        ]
    )
    if not policy.block_causal and rng.random() < 0.3:
        options = options | {"block_length": 5}
    return ToyRequest(seed, prompt, rng.choice([1, 3, 8, 30, 45, 45]), options)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_random_interleavings_equal_the_oracle(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    config = config_of(policy, asynchronous, mock_configs)
    runs = [run_interleaving(policy, config, seed) for seed in range(4)]
    assert sum(run.preemptions for run in runs) >= 10


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_as_on_a_gpu_where_the_host_learns_late_what_is_undecided(
    policy: Policy, asynchronous: bool, mock_configs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are not needed fill up a number known to the host, and every rule is applied to
    all of them."""

    def all_of(which: Tensor) -> Tensor:
        return torch.arange(len(which))

    monkeypatch.setattr(step, "indices_of", all_of)
    config = config_of(policy, asynchronous, mock_configs)
    runs = [run_interleaving(policy, config, seed, row_bounds=True) for seed in range(3)]
    assert sum(run.preemptions for run in runs) >= 5
    one_block = "window" not in policy.settings
    spared = [run.engine.worker.rows_spared > 0 for run in runs]
    assert spared == [one_block or not asynchronous] * len(runs)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_blocks_longer_than_pages_equal_the_oracle(asynchronous: bool, mock_configs: Any) -> None:
    """Four pages a block, so without prefix caching, and a budget of the least that is allowed."""
    config = mock_configs(
        BLOCK32,
        async_scheduling=asynchronous,
        block_size=PAGE,
        max_num_batched_tokens=64,
        enable_prefix_caching=False,
    )
    runs = [run_interleaving(BLOCK32, config, seed) for seed in range(7)]
    assert sum(run.preemptions for run in runs) >= 10


def config_of(policy: Policy, asynchronous: bool, mock_configs: Any) -> Any:
    """So few tokens a step that requests wait for each other."""
    return mock_configs(
        policy,
        async_scheduling=asynchronous,
        block_size=PAGE,
        max_num_batched_tokens=24 if policy.block_causal else 4 * 96,
    )


def run_interleaving(policy: Policy, config: Any, seed: int, row_bounds: bool = False) -> MockRun:
    """One random history, checked."""
    rng = Random(seed)
    run = MockRun(policy, config, num_pages=14, row_bounds=row_bounds)
    waiting = [(f"r{i}", random_request(rng, policy, seed)) for i in range(16)]
    while waiting:
        while waiting and rng.random() < 0.4:
            run.add(*waiting.pop(0))
        abort_one(rng, run)
        if run.engine.busy:
            run.step()
    while run.engine.busy:
        abort_one(rng, run)
        run.step()
    run.drain()
    return run


def abort_one(rng: Random, run: MockRun) -> None:
    """Now and then."""
    requests = run.engine.requests
    alive = [name for name in requests if not requests[name].is_finished()]
    if alive and rng.random() < 0.03:
        run.abort(rng.choice(alive))
