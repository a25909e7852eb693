"""What ``/metrics`` shows, and that other models know nothing of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY, generate_latest
from vllm.v1.metrics.loggers import StatLoggerManager, load_stat_logger_plugin_factories
from vllm.v1.metrics.prometheus import unregister_vllm_metrics
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.spec_decode.metrics import SpecDecodingLogging

from remix_vllm.engine.decoding_stats import DecodingStats
from tests.upstream.configs import llama, make_config

STATS = DecodingStats(
    forwards=7,
    positions=100,
    tokens=20,
    accepted=21,
    mixed=30,
    rejected=4,
    refreshes=2,
    blocks=3,
    corrupt_requests=1,
    finished=[(5, 20), (1, 8)],
)


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    unregister_vllm_metrics()
    yield
    unregister_vllm_metrics()


def shown() -> dict[str, float]:
    """Sums over the labels of engine 1, without buckets."""
    return {
        sample.name: sample.value
        for metric in REGISTRY.collect()
        for sample in metric.samples
        if sample.labels.get("engine") == "1" and "le" not in sample.labels
    }


def report(config: Any, stats: DecodingStats) -> None:
    manager = StatLoggerManager(config, engine_idxs=[0, 1])
    manager.record(SchedulerStats(spec_decoding_stats=stats.pack()), None, engine_idx=1)
    manager.record(SchedulerStats(), None, engine_idx=1)


def test_a_served_model_has_them_beside_vllms_own(shipped_model: Path) -> None:
    config = make_config(
        shipped_model,
        served_model_name="tiny",
        max_num_seqs=6,
        additional_config={"remix": {"block_length": 16}},
    )
    report(config, STATS)
    metrics = shown()
    assert {name: value for name, value in metrics.items() if name.startswith("vllm:remix_")} == {
        "vllm:remix_positions_accepted_total": 21,
        "vllm:remix_positions_mixed_total": 30,
        "vllm:remix_positions_rejected_total": 4,
        "vllm:remix_sequence_refreshes_total": 2,
        "vllm:remix_blocks_committed_total": 3,
        "vllm:remix_corrupt_requests_total": 1,
        "vllm:remix_request_nfe_count": 2,
        "vllm:remix_request_nfe_sum": 6,
        "vllm:remix_request_tokens_per_forward_count": 2,
        "vllm:remix_request_tokens_per_forward_sum": 4 + 8,
        # A float32 for each of 16 positions by 832 vocabulary rows, for 6 sequences.
        "vllm:remix_history_bytes": 16 * 832 * 4 * 6,
    } | {name: v for name, v in metrics.items() if name.endswith("_created") and "remix" in name}
    assert metrics["vllm:diffusion_num_denoising_steps_total"] == 7
    assert metrics["vllm:diffusion_num_canvas_positions_total"] == 100
    assert metrics["vllm:diffusion_num_committed_tokens_total"] == 20
    text = generate_latest(REGISTRY).decode()
    assert 'vllm:remix_request_nfe_bucket{engine="1",le="4.0",model_name="tiny"} 1.0' in text
    assert 'vllm:remix_positions_accepted_total{engine="0",model_name="tiny"} 0.0' in text


def test_a_second_engine_of_the_process_takes_them_over(shipped_model: Path) -> None:
    config = make_config(shipped_model, additional_config={"remix": {"block_length": 16}})
    report(config, STATS)
    report(config, DecodingStats(accepted=2))
    assert shown()["vllm:remix_positions_accepted_total"] == 2


def test_vllms_log_line_tells_steps_and_tokens() -> None:
    lines = []
    logging_ = SpecDecodingLogging(is_diffusion=True)
    logging_.observe(STATS.pack())
    logging_.log(log_fn=lambda text, *values: lines.append(text % values))
    [line] = lines
    assert "Denoising steps: 7, Canvas positions evaluated: 100" in line


def test_another_model_has_none_of_them_and_its_statistics_stay_off_if_it_says_so(
    tmp_path: Path,
) -> None:
    report(make_config(llama(tmp_path)), DecodingStats())
    metrics = shown()
    assert "vllm:num_requests_running" in metrics
    assert not [name for name in metrics if "remix" in name or "diffusion" in name]
    # A plugin of this kind would turn them on for every model.
    assert load_stat_logger_plugin_factories() == []
