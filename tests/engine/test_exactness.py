"""The engine against the oracle, float32: token ids and NFE of every request, whatever shares its
batch."""

import random
from typing import Any

import pytest

from remix_vllm.config import EngineOptions
from tests.models.engines import ask
from tests.models.runner import model_runner

OPTIONS: list[dict[str, Any]] = [
    {},
    {"block_length": 8},
    {"block_length": 16, "threshold": 0.6},
    {"preset": "paper"},
    {"preset": "paper", "js_threshold": 0.05, "block_length": 32},
    {"preset": "official"},
    {"preset": "official", "block_length": 16, "js_threshold": 0.35},
    {"decoding": "threshold"},
    {"decoding": "low_confidence", "block_length": 16},
    {"decoding": "low_confidence", "block_length": 16, "steps_per_block": 5},
    {"max_nfe": 9},
]


def mixed_requests(count: int, seed: int) -> list[tuple[list[int], int, dict[str, Any]]]:
    """Random prompts of 1 to 70 tokens, 1 to 60 tokens to generate, every option set in turn."""
    rng = random.Random(seed)
    return [
        (
            [rng.randrange(5, 300) for _ in range(rng.choice([1, 3, 9, 17, 30, 70]))],
            rng.choice([1, 7, 16, 33, 60]),
            OPTIONS[i % len(OPTIONS)],
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_forty_mixed_requests_in_one_batch_equal_the_oracle(
    engine: Any, oracle: Any, async_scheduling: bool
) -> None:
    requests = mixed_requests(40, seed=1)
    oracle.check(requests, ask(engine(async_scheduling=async_scheduling), requests))


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_a_generation_longer_than_the_window_equals_the_oracle(
    engine: Any, oracle: Any, async_scheduling: bool
) -> None:
    """The canvas moves on block by block; a step planned too early is left alone."""
    settings = {"window": 24, "block_length": 8}
    llm = engine(async_scheduling=async_scheduling, additional_config={"remix": settings})
    requests = [(prompt, length, {}) for prompt, length, _ in mixed_requests(10, seed=2)]
    oracle.check(requests, ask(llm, requests), EngineOptions.parse(settings, 128))


def test_official_preset_as_the_servers_default_sees_the_whole_window(
    engine: Any, oracle: Any
) -> None:
    settings = {"preset": "official", "block_length": 8, "window": 64}
    llm = engine(additional_config={"remix": settings})
    requests = [(p, n, {}) for p, n, _ in mixed_requests(12, seed=3)]
    oracle.check(requests, ask(llm, requests), EngineOptions.parse(settings, 128))


def test_preempted_requests_return_the_same_tokens_and_nfe(engine: Any, oracle: Any) -> None:
    """A pool of KV pages too small for all of them: some lose their pages in the middle of a
    block."""
    settings = {"window": 24, "block_length": 8}
    llm = engine(
        num_gpu_blocks_override=7,
        block_size=32,
        max_model_len=96,
        max_num_seqs=4,
        additional_config={"remix": settings},
    )
    requests = [(p[:20], 60, {}) for p, _, _ in mixed_requests(8, seed=4)]
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    preemptions = 0
    preempt = scheduler._preempt_request

    def counting(*args: Any, **kwargs: Any) -> None:
        nonlocal preemptions
        preemptions += 1
        preempt(*args, **kwargs)

    scheduler._preempt_request = counting
    answers = ask(llm, requests, ignore_eos=True)
    scheduler._preempt_request = preempt
    assert preemptions > 0
    oracle.check(requests, answers, EngineOptions.parse(settings, 128), ignore_eos=True)


def test_nothing_is_held_after_the_last_request(engine: Any) -> None:
    llm = engine(async_scheduling=False)
    ask(llm, mixed_requests(5, seed=5))
    core = llm.llm_engine.engine_core.engine_core
    pool = core.scheduler.kv_cache_manager.block_pool
    # One page is vLLM's own null block.
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert not core.scheduler.progress
    assert not core.scheduler.requests
    runner = model_runner(llm)
    ask(llm, [([7, 8], 3, {})])
    # The runner frees the slots of finished requests at the start of its next step.
    assert len(runner.model_state.slots) <= 1
    canvas = runner.model_state.canvas
    kept = canvas.has_history[:-1].view(-1, canvas.history_rows).any(1).nonzero().flatten().tolist()
    assert set(kept) <= set(runner.model_state.slots.values())
