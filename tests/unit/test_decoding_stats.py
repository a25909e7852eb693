"""Counts on their way from the worker to the metrics."""

import pickle

import torch
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

from remix_vllm.engine.decoding_stats import DecodingStats
from remix_vllm.engine.progress import Forward
from remix_vllm.engine.step_counts import StepCounts, StepCountsTensor, take_counts

COUNTS = StepCounts(accepted=[1, 5], mixed=[2, 6], rejected=[3, 7], corrupt=[0, 8])


def test_counts_reach_the_scheduler_from_another_process() -> None:
    tensor = StepCountsTensor(torch.tensor([[1, 2, 3, 0], [5, 6, 7, 8]]))
    counts = tensor.to_cpu_nonblocking().tolists()
    output = ModelRunnerOutput(["a", "b"], {"a": 0, "b": 1}, logprobs=counts)
    output = pickle.loads(pickle.dumps(output))
    assert take_counts(output) == COUNTS
    assert output.logprobs is None
    assert take_counts(output) is None


def test_rays_executor_leaves_them_alone() -> None:
    """It takes whatever is in ``logprobs`` apart, to copy read-only arrays."""
    from vllm.v1.executor.ray_utils import detach_zero_copy_from_model_runner_output

    output = ModelRunnerOutput(["a", "b"], {"a": 0, "b": 1}, logprobs=COUNTS)
    detach_zero_copy_from_model_runner_output(output)
    assert take_counts(output) == COUNTS


def test_a_report_survives_the_way_to_the_front_end() -> None:
    stats = DecodingStats()
    stats.add_forward(Forward(positions=8, tokens=3, refreshes=True, blocks=0))
    stats.add_forward(Forward(positions=5, tokens=5, refreshes=False, blocks=1))
    stats.add_counts(COUNTS, 0)
    stats.add_counts(COUNTS, 1)
    stats.finished += [(4, 9), (1, 20)]
    assert stats == DecodingStats(2, 13, 8, 6, 8, 10, 1, 1, 1, [(4, 9), (1, 20)])

    sent = MsgpackEncoder().encode(SchedulerStats(spec_decoding_stats=stats.pack()))
    received = MsgpackDecoder(SchedulerStats).decode(sent).spec_decoding_stats
    assert DecodingStats.unpack(received) == stats
    packed = (received.num_drafts, received.num_draft_tokens, received.num_accepted_tokens)
    assert packed == (2, 13, 8)


def test_nothing_to_tell_is_no_report() -> None:
    assert DecodingStats().pack() is None
    left_alone = DecodingStats()
    left_alone.add_counts(StepCounts([0], [0], [0], [0]), 0)
    assert left_alone.pack() is None
