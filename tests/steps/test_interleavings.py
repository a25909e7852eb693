"""Random arrivals, aborts and preemptions against the real scheduler: outputs equal the
oracle's."""

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.reference import Generation, generate
from tests.models.mock_engine import MAX_MODEL_LEN, VALID_TOKENS, MockEngine, mock_config
from tests.models.toy import ToyModel
from tests.models.toy_attention import BlockCausalToy, CachedToy

PAGE = 8


@dataclass(frozen=True)
class Policy:
    name: str
    settings: dict[str, Any]

    @property
    def block_causal(self) -> bool:
        return self.settings.get("kv_cache") == "block"

    def model(self, seed: int) -> ToyModel:
        """The toy that this policy's sequences attend like, for the oracle as for the worker."""
        sharpness = [1.0, 4.0, 9.0][seed % 3]
        if self.block_causal:
            block = BlockCausalToy(seed, sharpness=sharpness)
            block.block_length = self.settings["block_length"]
            return block
        if self.settings["kv_cache"] == "none":
            return ToyModel(seed, sharpness=sharpness)
        cached = CachedToy(seed, sharpness=sharpness)
        cached.policy = self.settings["kv_cache"]
        cached.refresh_interval = self.settings.get("refresh_interval", 0)
        return cached


POLICIES = [
    Policy("none", {"kv_cache": "none", "block_length": 8, "window": 20}),
    Policy("prefix", {"kv_cache": "prefix", "block_length": 8, "window": 20}),
    Policy("dual", {"kv_cache": "dual", "block_length": 8, "window": 20, "refresh_interval": 4}),
    Policy("block4", {"kv_cache": "block", "block_length": 4}),
    Policy("block8", {"kv_cache": "block", "block_length": 8}),
]


@pytest.fixture(params=POLICIES, ids=lambda p: p.name)
def policy(request: pytest.FixtureRequest) -> Policy:
    return request.param


def expected(policy: Policy, engine: EngineOptions, request: dict[str, Any]) -> Generation:
    options = engine.request_options(request["options"])
    model = policy.model(request["seed"])
    return generate(
        model,
        request["prompt"],
        min(request["max_tokens"], MAX_MODEL_LEN - len(request["prompt"])),
        options,
        model.mask_token_id,
        VALID_TOKENS,
        engine.window,
        (),
        len(request["prompt"]) % options.block_length if policy.block_causal else 0,
        getattr(model, "before_forward", None),
    )


def random_request(rng: Random, policy: Policy, model_seed: int) -> dict[str, Any]:
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
    return {
        "seed": seed,
        "prompt": prompt,
        "max_tokens": rng.choice([1, 3, 8, 30, 45, 45]),
        "options": options,
    }


def pages_in_use(engine: MockEngine) -> int:
    pool = engine.scheduler.kv_cache_manager.block_pool
    return pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_random_interleavings_equal_the_oracle(
    policy: Policy, asynchronous: bool, tiny_checkpoints: Any
) -> None:
    config = mock_config(
        tiny_checkpoints(policy.settings.get("block_length") if policy.block_causal else None),
        policy.settings,
        async_scheduling=asynchronous,
        block_size=PAGE,
        max_num_batched_tokens=24 if policy.block_causal else 4 * MAX_MODEL_LEN,
    )
    preempted = [run_interleaving(policy, config, seed) for seed in range(4)]
    assert sum(preempted) >= 10


def run_interleaving(policy: Policy, config: Any, seed: int) -> int:
    """One random history, checked; returns its number of preemptions."""
    rng = Random(seed)
    engine = MockEngine(config, num_pages=14, page_size=PAGE)
    waiting = [(f"r{i}", random_request(rng, policy, seed)) for i in range(16)]
    requests = dict(waiting)
    aborted: set[str] = set()
    for _ in range(2000):
        while waiting and rng.random() < 0.4:
            name, request = waiting.pop(0)
            model = policy.model(request["seed"])
            engine.add(name, model, request["prompt"], request["max_tokens"], request["options"])
        alive = [n for n in engine.requests if not engine.requests[n].is_finished()]
        if alive and rng.random() < 0.03:
            name = rng.choice(alive)
            engine.abort(name)
            aborted.add(name)
        if engine.busy:
            check_step(engine, engine.step())
        elif not waiting:
            break
    else:
        raise AssertionError("requests do not end")
    assert pages_in_use(engine) == 0
    assert not engine.scheduler.progress
    for name in requests.keys() - aborted:
        result = expected(policy, engine.worker.options, requests[name])
        got = (engine.outputs[name], engine.nfe(name))
        assert got == (result.token_ids, result.nfe), (name, requests[name])
    return sum(request.num_preemptions for request in engine.requests.values())


def check_step(engine: MockEngine, output: Any) -> None:
    """What must hold after every step."""
    scheduler = engine.scheduler
    assert sum(output.num_scheduled_tokens.values()) <= scheduler.max_num_scheduled_tokens
    assert len(scheduler.running) <= scheduler.max_num_running_reqs
    for request in scheduler.running:
        assert 0 <= request.num_computed_tokens <= request.num_tokens
        assert request.num_output_placeholders == 0
    held = [page for r in scheduler.running for page in pages_of(engine, r.request_id)]
    shared = {page for page in held if held.count(page) > 1}
    pool = scheduler.kv_cache_manager.block_pool
    # Only committed pages are shared, and those are hashed.
    assert all(pool.blocks[page].block_hash is not None for page in shared)


def pages_of(engine: MockEngine, name: str) -> list[int]:
    return engine.scheduler.kv_cache_manager.get_block_ids(name)[0]
