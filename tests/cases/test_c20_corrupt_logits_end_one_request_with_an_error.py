"""C20: a request whose logits hold no distribution ends with an error, and it alone.

https://github.com/vllm-project/vllm/issues/47424: NaN logits became a page of pad tokens.
"""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor
from vllm import SamplingParams, TokensPrompt

from tests.models.mock_run import MockRun
from tests.models.mock_worker import Slot
from tests.models.poisoned_engine import poisoned
from tests.models.policies import BLOCK4, BLOCK8, DUAL, NONE, PREFIX, Policy, ToyRequest

POISON = 801
SCHEDULER_LOGGER = "vllm.remix_vllm.scheduler"

MIXING = ToyRequest(4, [i * 5 % 19 for i in range(21)], 30, {"js_threshold": 0.0})
BESIDE = {
    "mixes": ToyRequest(4, [i * 3 % 19 for i in range(14)], 20, {"threshold": 0.3}),
    "does not": ToyRequest(1, [2, 7, 1, 8], 24, {"decoding": "low_confidence"}),
}
KINDS = {
    "one NaN": lambda row: row.index_fill(0, torch.tensor([3]), torch.nan),
    "infinity": lambda row: row.index_fill(0, torch.tensor([3]), torch.inf),
    "nothing finite": lambda row: torch.full_like(row, -torch.inf),
}


def corrupt_from(run: MockRun, name: str, forward: int, kind: str) -> None:
    """Spoil one row of each forward of ``name`` after its first ``forward`` ones."""
    worker = run.engine.worker
    real, seen = worker._forward, []

    def spoiled(slot: Slot, *args: Any) -> Tensor:
        logits = real(slot, *args)
        if slot is worker.slots.get(name) and len(logits):
            seen.append(slot)
            if len(seen) > forward:
                logits[-1] = KINDS[kind](logits[-1])
        return logits

    worker._forward = spoiled


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", [NONE, PREFIX, DUAL, BLOCK4, BLOCK8], ids=lambda p: p.name)
def test_it_fails_alone_in_any_forward_and_its_slot_is_fit_for_the_next(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=384)
    for forward, kind in enumerate(["one NaN", "infinity", "nothing finite", "one NaN"]):
        run = MockRun(policy, config)
        for name, request in BESIDE.items():
            run.add(name, request)
        run.add("corrupt", MIXING)
        corrupt_from(run, "corrupt", forward, kind)
        while "corrupt" not in run.engine.finish_reasons:
            run.step()
        assert sum(report.corrupt_requests for report in run.engine.reports) == 1
        assert run.engine.finish_reasons["corrupt"] == "error"
        assert run.engine.nfe("corrupt") == forward + 1
        returned = run.engine.outputs["corrupt"]
        expected = MIXING.expected(policy, run.engine.worker.options).token_ids
        assert returned == expected[: len(returned)]
        assert len(returned) < len(expected)

        # Draining compares all but the aborted with the oracle, and finds nothing held.
        run.aborted.add("corrupt")
        slots = len(run.engine.worker.free)
        for number in range(slots):
            run.add(f"after {number}", MIXING)
        run.drain()


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_the_engine_serves_on(
    asynchronous: bool,
    engine: Any,
    oracle: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here keys and values are NaN too, in pages that later requests get."""
    llm = engine(
        async_scheduling=asynchronous,
        disable_log_stats=False,
        additional_config={"remix": {"block_length": 16, "threshold": 0.6}},
        # So few pages that each is used again: 15, and a batch needs 13.
        block_size=32,
        kv_cache_memory_bytes=1 << 21,
    )
    prompts = [[70 + i for i in range(n)] for n in (5, 19, 30, 44)]
    corrupt = [*range(100, 121), POISON, *range(130, 140)]
    params = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)
    options = {"block_length": 16, "threshold": 0.6}
    expected = [oracle.generate(p, 40, options, ignore_eos=True) for p in prompts]
    batch = [*prompts[:2], corrupt, *prompts[2:]]
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)

    [stat_logger] = llm.llm_engine.logger_manager.stat_loggers[-1:]
    counter = stat_logger.remix_metrics.counters["corrupt_requests"][0]
    before = counter._value.get()
    for _ in range(3):
        caplog.clear()
        with poisoned(llm, POISON), caplog.at_level(logging.ERROR, SCHEDULER_LOGGER):
            outputs = llm.generate(
                [TokensPrompt(prompt_token_ids=p) for p in batch], params, use_tqdm=False
            )
        failed = outputs.pop(2)
        assert failed.outputs[0].finish_reason == "error"
        assert list(failed.outputs[0].token_ids) == []
        for output, answer in zip(outputs, expected, strict=True):
            completion = output.outputs[0]
            assert list(completion.token_ids) == answer.token_ids
            assert sum(completion.spec_decode_metrics.histogram) == answer.nfe
        [message] = {r.getMessage() for r in caplog.records if r.name == SCHEDULER_LOGGER}
        assert message.startswith(f"Request {failed.request_id}-")
        assert "16 rows" in message
    assert counter._value.get() == before + 3
    scheduler = llm.llm_engine.engine_core.engine_core.scheduler
    assert not scheduler.progress
    assert scheduler.kv_cache_manager.usage == 0
