"""SDAR on the engine against the oracle on the plain block-causal model: token ids and NFE."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.reference import Generation, generate
from tests.models.engines import Answer, EngineSpec, ask, start_engine
from tests.models.oracle import PlainReference
from tests.models.plain_sdar import PlainSDAR
from tests.models.sdar_checkpoints import MASK, write_sdar

ARGUMENTS = {
    "skip_tokenizer_init": True,
    "max_model_len": 160,
    "max_num_batched_tokens": 96,
    "max_num_seqs": 8,
    "block_size": 32,
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"threshold": 0.3},
    {"preset": "paper"},
    {"decoding": "threshold", "threshold": 0.4},
    {"decoding": "low_confidence"},
    {"max_nfe": 15},
]


class SDAR:
    """One checkpoint: an engine, and the oracle on the same weights."""

    def __init__(self, path: Path, block_length: int, **arguments: Any) -> None:
        write_sdar(path, seed=block_length, block_size=block_length)
        self.model = PlainReference(PlainSDAR.load(path))
        self.options = EngineOptions.parse(None, block_length, block_causal=True)
        self.llm = start_engine(EngineSpec.of(path, ARGUMENTS | arguments))

    def expected(self, prompt: list[int], length: int, options: dict[str, Any]) -> Generation:
        request = self.options.request_options(options)
        return generate(
            self.model,
            prompt,
            length,
            request,
            MASK,
            len(self.model.embedding),
            self.options.window,
            grid_offset=len(prompt) % request.block_length,
        )

    def check(self, requests: list[tuple[list[int], int, dict[str, Any]]]) -> None:
        answers = ask(self.llm, requests, ignore_eos=True)
        for (prompt, length, options), answer in zip(requests, answers, strict=True):
            expected = self.expected(prompt, length, options)
            assert answer == Answer(expected.token_ids, expected.nfe), (len(prompt), options)


def mixed_requests(count: int, seed: int) -> list[tuple[list[int], int, dict[str, Any]]]:
    """Half of the prompts begin alike, so that the prefix cache has something to share."""
    rng = Random(seed)
    shared = [rng.randrange(1, 100) for _ in range(70)]
    prompts = [
        (shared[: rng.choice([5, 33, 70])] if rng.random() < 0.5 else [])
        + [rng.randrange(1, 100) for _ in range(rng.choice([1, 2, 7, 20, 45]))]
        for _ in range(count)
    ]
    return [(p, rng.choice([1, 5, 16, 30]), OPTIONS[i % 6]) for i, p in enumerate(prompts)]


@pytest.mark.parametrize("block_length", [4, 8, 32])
def test_a_batch_equals_the_oracle(tmp_path: Path, block_length: int) -> None:
    """Chunked prefills (96 tokens a step), shared prefixes, several blocks, all in one batch."""
    sdar = SDAR(tmp_path, block_length)
    sdar.check(mixed_requests(30, seed=block_length))
    # Again, now that all prefixes are cached.
    sdar.check(mixed_requests(12, seed=block_length))


def test_asynchronous_scheduling_and_preemption_change_nothing(tmp_path: Path) -> None:
    sdar = SDAR(tmp_path, 8, async_scheduling=True, num_gpu_blocks_override=9)
    scheduler = sdar.llm.llm_engine.engine_core.engine_core.scheduler
    preempted: list[str] = []
    preempt = scheduler._preempt_request

    def counting(request: Any, *args: Any, **kwargs: Any) -> None:
        preempted.append(request.request_id)
        preempt(request, *args, **kwargs)

    scheduler._preempt_request = counting
    sdar.check(mixed_requests(24, seed=5))
    assert preempted
    pool = scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1


def test_a_repeated_prompt_computes_only_its_tail(tmp_path: Path) -> None:
    sdar = SDAR(tmp_path, 4)
    prompt = [1 + i * 37 % 99 for i in range(130)]
    scheduler = sdar.llm.llm_engine.engine_core.engine_core.scheduler
    scheduled: list[int] = []
    schedule = scheduler.schedule

    def counting(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        scheduled.append(output.total_num_scheduled_tokens)
        return output

    scheduler.schedule = counting
    sdar.check([(prompt, 4, {})])
    first = sum(scheduled)
    scheduled.clear()
    sdar.check([(prompt, 4, {})])
    # 128 of the 130 tokens are whole pages.
    assert first - sum(scheduled) == 128
