"""What the scheduler reports adds up to what the oracle did."""

from dataclasses import fields
from typing import Any

import pytest

from remix_vllm.engine.decoding_stats import DecodingStats
from tests.models.mock_run import MockRun
from tests.models.policies import POLICIES, Policy, ToyRequest

REQUESTS = {
    "mixes": ToyRequest(4, [i * 3 % 19 for i in range(14)], 21, {"threshold": 0.5}),
    "rejects": ToyRequest(4, [i * 5 % 19 for i in range(9)], 30, {"js_threshold": 0.01}),
    "rejects more": ToyRequest(7, [2, 7, 1, 8], 30, {"js_threshold": 0.0}),
    "does not": ToyRequest(1, [2, 7, 1, 8], 24, {"decoding": "low_confidence"}),
}


def total(reports: list[DecodingStats]) -> DecodingStats:
    result = DecodingStats()
    for report in reports:
        for field in fields(DecodingStats):
            value = getattr(result, field.name) + getattr(report, field.name)
            setattr(result, field.name, value)
    return result


def expected_of(run: MockRun, name: str) -> DecodingStats:
    """The same from the trace of the oracle's steps; ``positions`` is not in it."""
    request, engine = run.requests[name], run.engine.worker.options
    options = engine.request_options(request.options)
    generation = request.expected(run.policy, engine)
    length = options.block_length
    offset = len(request.prompt) % length if run.policy.block_causal else 0
    stats = DecodingStats(
        forwards=generation.nfe,
        tokens=len(generation.token_ids),
        finished=[(generation.nfe, len(generation.token_ids))],
    )
    block, step = -1, 0
    for trace in generation.trace:
        step = step + 1 if trace.block == block else 0
        block = trace.block
        start = block * length - offset
        fed = trace.input_state[max(start, 0) : start + length]
        stats.accepted += len(trace.accepted)
        stats.blocks += step == 0
        stats.mixed += fed.count("C")
        # What was left undecided and is not fed a blend was rejected.
        stats.rejected += fed.count("M") if options.mixes and step else 0
        if engine.kv_cache in ("prefix", "dual"):
            every = engine.refresh_interval
            stats.refreshes += step == 0 or (every > 0 and step % every == 0)
    return stats


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_reports_add_up_to_the_oracles_steps(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=384)
    run = MockRun(policy, config)
    for name, request in REQUESTS.items():
        run.add(name, request)
    run.drain()
    assert run.preemptions == 0

    got = total(run.engine.reports)
    expected = total([expected_of(run, name) for name in REQUESTS])
    requests = run.engine.requests.values()
    # vLLM's record of each request holds the positions that it alone was responsible for.
    expected.positions = sum(r.spec_decode_metrics.num_draft_tokens for r in requests)
    assert sorted(got.finished) == sorted(expected.finished)
    got.finished = expected.finished
    assert got == expected
    assert got.mixed and got.rejected and got.positions >= got.accepted


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_an_aborted_request_has_no_nfe(asynchronous: bool, mock_configs: Any) -> None:
    """It is no measure of anything: the request may have been at its beginning."""
    policy = POLICIES[0]
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=384)
    run = MockRun(policy, config)
    run.add("mixes", REQUESTS["mixes"])
    run.add("does not", REQUESTS["does not"])
    for _ in range(4):
        run.step()
    run.abort("does not")
    run.drain()
    got = total(run.engine.reports)
    assert got.finished == [(run.engine.nfe("mixes"), 21)]
    assert got.forwards > run.engine.nfe("mixes")


def test_a_worker_without_counts_is_served(mock_configs: Any) -> None:
    policy = POLICIES[0]
    run = MockRun(policy, mock_configs(policy, max_num_batched_tokens=384))
    execute = run.engine.worker.execute

    def without_counts(output: Any) -> dict[str, list[int]]:
        returned = execute(output)
        run.engine.worker.counts = None
        return returned

    run.engine.worker.execute = without_counts
    run.add("mixes", REQUESTS["mixes"])
    run.drain()
    got = total(run.engine.reports)
    assert (got.forwards, got.tokens, got.accepted) == (run.engine.nfe("mixes"), 21, 0)


def test_positions_are_never_negative(mock_configs: Any) -> None:
    """Under the official rules a request's record spans its blocks; a counter cannot go back."""
    settings = {"kv_cache": "none", "block_length": 8, "window": 20, "preset": "official"}
    official = Policy("official", settings)
    run = MockRun(official, mock_configs(official, max_num_batched_tokens=384))
    run.add("official", ToyRequest(4, [2, 7, 1, 8], 20))
    run.drain()
    reports = [report for report in run.engine.reports if report.forwards]
    assert len(reports) > 3
    assert all(report.positions > 0 for report in reports)
