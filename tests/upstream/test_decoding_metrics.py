"""Facts about vLLM that the way of the counts and the place of the metrics rest on."""

import inspect
from typing import Any

import pytest
import torch
from prometheus_client import REGISTRY, Counter
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.prometheus import unregister_vllm_metrics
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.spec_decode.metrics import SpecDecodingLogging, SpecDecodingProm, SpecDecodingStats
from vllm.v1.worker.gpu.async_utils import AsyncOutput
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from remix_vllm.engine.step_counts import StepCounts, StepCountsTensor


def test_a_plugins_metrics_would_be_unregistered_and_statistics_turned_on() -> None:
    """Why the metrics are no stat logger plugin; when this fails, they can become one."""
    metric = Counter("vllm:remix_made_before_vllms", "")
    assert metric in REGISTRY._collector_to_names
    unregister_vllm_metrics()
    assert metric not in REGISTRY._collector_to_names
    constructor = inspect.getsource(inspect.unwrap(PrometheusStatLogger.__init__))
    assert "unregister_vllm_metrics()" in constructor
    assert "self.log_stats = log_stats or has_custom_loggers" in inspect.getsource(AsyncLLM)


@pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for streams")
def test_what_a_sampler_gives_for_logprobs_reaches_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Anything:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

    monkeypatch.setattr("torch.cuda.set_stream", lambda stream: None)
    monkeypatch.setattr("torch.cuda.Event", lambda **arguments: Anything())
    sampled = SamplerOutput(
        sampled_token_ids=torch.zeros(2, 1, dtype=torch.int32),
        logprobs_tensors=StepCountsTensor(torch.tensor([[1, 2, 3, 0], [0, 0, 0, 4]])),
        num_nans=None,
        num_sampled=torch.tensor([1, 0]),
        num_rejected=torch.tensor([0, 0]),
    )
    output = AsyncOutput(
        ModelRunnerOutput(["a", "b"], {"a": 0, "b": 1}),
        sampled,
        sampled.num_sampled,
        Anything(),
        Anything(),
        False,
        None,
    ).get_output()
    assert output.logprobs == StepCounts([1, 0], [2, 0], [3, 0], [0, 4])


def test_nothing_reads_the_lists_per_position_of_a_diffusion_model() -> None:
    class Unread(list[int]):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("read")

        def __iter__(self) -> Any:
            raise AssertionError("read")

    stats = SpecDecodingStats(0, 3, 20, 8, Unread([1]), Unread([2]))
    lines: list[str] = []
    logging = SpecDecodingLogging(is_diffusion=True)
    logging.observe(stats)
    logging.log(log_fn=lambda text, *values: lines.append(text % values))
    assert len(lines) == 1
    unregister_vllm_metrics()
    metrics = SpecDecodingProm(None, ["engine"], {0: ["0"]}, is_diffusion=True)
    metrics.observe(stats)
    assert metrics.counter_spec_decode_num_drafts[0]._value.get() == 3
    unregister_vllm_metrics()


def test_requests_in_the_set_of_errors_end_before_the_statistics_are_made() -> None:
    source = inspect.getsource(Scheduler.update_from_output)
    steps = [
        source.index("generated_token_ids = ("),
        source.index("error_req_ids = set(self.grammar_compile_error_reqs)"),
        source.index("RequestStatus.FINISHED_ERROR\n            )"),
        source.index("stats := self.make_stats("),
    ]
    assert steps == sorted(steps)
