"""ReMix decoding in ``/metrics``, beside vLLM's own and with their labels.

vLLM's three diffusion metrics (denoising steps, canvas positions, committed tokens) are filled from
the same record by vLLM itself. The numbers come from the scheduler with each step's statistics
(:mod:`remix_vllm.engine.decoding_stats`); with several API servers each step's go to one of them,
and prometheus adds them up.
"""

from collections.abc import Sequence
from typing import Any

from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.stats import SchedulerStats

from remix_vllm.engine.capacity import Capacity
from remix_vllm.engine.decoding_stats import DecodingStats
from remix_vllm.engine.options import engine_options

COUNTERS = {
    "positions_accepted": "Positions decided by a denoising step.",
    "positions_mixed": "Positions that a denoising step left to be fed a blend, once per step.",
    "positions_rejected": "Positions sent back to the mask because their distribution moved.",
    "sequence_refreshes": (
        "Denoising steps that recomputed the whole sequence under kv_cache prefix or dual."
    ),
    "blocks_committed": "Blocks whose last token was returned.",
    "corrupt_requests": "Requests that ended with an error because of NaN or infinite logits.",
}
NFE_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096)
TOKENS_PER_FORWARD_BUCKETS = (0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)


class DecodingMetrics:
    """The metrics of the engines that one front end sees.

    Args:
        stat_logger: vLLM's, whose labels and kinds of metrics are used: those of Ray in Ray Serve.
    """

    def __init__(self, stat_logger: PrometheusStatLogger) -> None:
        self.stat_logger = stat_logger
        self.counters = {
            name: self._per_engine(stat_logger._counter_cls, name, documentation)
            for name, documentation in COUNTERS.items()
        }
        self.nfe = self._histogram(
            "request_nfe", "Forward evaluations of a finished request.", NFE_BUCKETS
        )
        self.tokens_per_forward = self._histogram(
            "request_tokens_per_forward",
            "Tokens of a finished request by its forward evaluations.",
            TOKENS_PER_FORWARD_BUCKETS,
        )
        history = self._per_engine(
            stat_logger._gauge_cls,
            "history_bytes",
            "Memory on each worker for the distributions that the rejection rule compares with.",
            multiprocess_mode="mostrecent",
        )
        config = stat_logger.vllm_config
        capacity = Capacity(engine_options(config), config.model_config)
        for gauge in history.values():
            gauge.set(capacity.bytes_per_sequence * config.scheduler_config.max_num_seqs)

    def _per_engine(
        self, metric_cls: Any, name: str, documentation: str, **arguments: Any
    ) -> dict[int, Any]:
        metric = metric_cls(
            name=f"vllm:remix_{name}",
            documentation=documentation,
            labelnames=["model_name", "engine"],
            **arguments,
        )
        engines = self.stat_logger.per_engine_labelvalues
        return {index: metric.labels(*values) for index, values in engines.items()}

    def _histogram(self, name: str, documentation: str, buckets: Sequence[float]) -> dict[int, Any]:
        histogram_cls = self.stat_logger._histogram_cls
        return self._per_engine(histogram_cls, name, documentation, buckets=list(buckets))

    def record(self, scheduler_stats: SchedulerStats | None, engine: int) -> None:
        """Add what a step of ``engine`` reports."""
        if scheduler_stats is None or scheduler_stats.spec_decoding_stats is None:
            return
        stats = DecodingStats.unpack(scheduler_stats.spec_decoding_stats)
        for name, value in {
            "positions_accepted": stats.accepted,
            "positions_mixed": stats.mixed,
            "positions_rejected": stats.rejected,
            "sequence_refreshes": stats.refreshes,
            "blocks_committed": stats.blocks,
            "corrupt_requests": stats.corrupt_requests,
        }.items():
            self.counters[name][engine].inc(value)
        for nfe, tokens in stats.finished:
            self.nfe[engine].observe(nfe)
            self.tokens_per_forward[engine].observe(tokens / nfe)
