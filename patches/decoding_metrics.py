"""The metrics of served models, where vLLM makes and feeds its own.

Symptom     The metrics of a plugin (group `vllm.stat_logger_plugins`) are missing from `/metrics`,
            and `--disable-log-stats` is without effect for every model, served or not.
Mechanism   A stat logger of a plugin is made before vLLM's Prometheus logger, whose constructor
            unregisters every metric that is called `vllm:`; and the mere presence of one turns
            statistics on. So the metrics are made at the end of that constructor instead, for
            served models only, and are fed by the same `record`. They are also there for an `LLM`,
            which loads no stat logger plugins.
Upstream    `vllm/v1/metrics/loggers.py` (`PrometheusStatLogger`, `StatLoggerManager`),
            `vllm/v1/metrics/prometheus.py` (`unregister_vllm_metrics`),
            `vllm/v1/engine/async_llm.py` (`has_custom_loggers`).
Delete when a stat logger plugin can decline by configuration, and registers after vLLM's.
"""

import functools
from typing import TYPE_CHECKING, Any

from .served import is_served

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.metrics.loggers import PrometheusStatLogger
    from vllm.v1.metrics.stats import IterationStats, SchedulerStats


@functools.cache
def apply() -> None:
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    _make_metrics(PrometheusStatLogger)
    _feed_metrics(PrometheusStatLogger)


def _make_metrics(logger_cls: "type[PrometheusStatLogger]") -> None:
    stock = logger_cls.__init__

    @functools.wraps(stock)
    def __init__(
        self: "PrometheusStatLogger", vllm_config: "VllmConfig", *args: Any, **kwargs: Any
    ) -> None:
        stock(self, vllm_config, *args, **kwargs)
        self.remix_metrics = None
        if is_served(vllm_config.model_config):
            from remix_vllm.serving.metrics import DecodingMetrics

            self.remix_metrics = DecodingMetrics(self)

    logger_cls.__init__ = __init__


def _feed_metrics(logger_cls: "type[PrometheusStatLogger]") -> None:
    stock = logger_cls.record

    @functools.wraps(stock)
    def record(
        self: "PrometheusStatLogger",
        scheduler_stats: "SchedulerStats | None",
        iteration_stats: "IterationStats | None",
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        stock(self, scheduler_stats, iteration_stats, mm_cache_stats, engine_idx)
        if self.remix_metrics is not None:
            self.remix_metrics.record(scheduler_stats, engine_idx)

    logger_cls.record = record
