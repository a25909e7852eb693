"""What is added to vLLM's ``EngineArgs``: flags, fitting limits, draining, served models alone.

The command line, ``LLM(...)``, the benchmarks and spawned API-server processes all go through this
class (vLLM 0.32, ``engine/arg_utils.py``). Those processes load plugins only in its
``__post_init__``, so what they need happens later than that.
"""

import logging
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

from remix_vllm.engine.capacity import Capacity
from remix_vllm.engine.options import model_options
from remix_vllm.families import SERVED_ARCHITECTURES, is_served
from remix_vllm.serving.cli import add_flags
from remix_vllm.serving.draining import mark_default, settle

logger = logging.getLogger("vllm.remix_vllm.engine_args")


@cache
def install_engine_args() -> None:
    """Wrap three methods of ``EngineArgs``; once per process."""
    EngineArgs.add_cli_args = staticmethod(_with_flags(EngineArgs.add_cli_args))
    EngineArgs.create_engine_config = _for_served(EngineArgs.create_engine_config)
    EngineArgs._set_default_max_num_seqs_and_batched_tokens_args = _with_fitting_limits(
        EngineArgs._set_default_max_num_seqs_and_batched_tokens_args
    )


def _with_flags(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def add_cli_args(parser: Any) -> Any:
        parser = add_flags(original(parser))
        mark_default(parser)
        return parser

    return add_cli_args


def _for_served(original: Callable[..., VllmConfig]) -> Callable[..., VllmConfig]:
    """Refuse options for other architectures, for which the configuration hook never runs; let
    served ones drain."""

    @wraps(original)
    def create_engine_config(self: EngineArgs, *args: Any, **kwargs: Any) -> VllmConfig:
        options = (self.additional_config or {}).get("remix")
        if not isinstance(options, Mapping | None):
            raise ValueError(f"additional_config remix={options!r}: must be an object of options")
        vllm_config = original(self, *args, **kwargs)
        architectures = vllm_config.model_config.architectures
        if is_served(architectures):
            settle(self, vllm_config)
        elif options is not None:
            raise ValueError(
                f"--decoding / additional_config remix={options}: architecture "
                f"{', '.join(architectures)} is not served by remix_vllm; served: "
                f"{', '.join(SERVED_ARCHITECTURES)}"
            )
        return vllm_config

    return create_engine_config


def _with_fitting_limits(original: Callable[..., None]) -> Callable[..., None]:
    """Fit the limits the user did not give, and check those given."""

    @wraps(original)
    def set_defaults(
        self: EngineArgs, usage_context: Any, model_config: Any, parallel_config: Any
    ) -> None:
        free_tokens = self.max_num_batched_tokens is None
        free_sequences = self.max_num_seqs is None
        original(self, usage_context, model_config, parallel_config)
        if not is_served(model_config.architectures):
            return
        options = model_options(model_config, self.additional_config)
        capacity = Capacity(options, model_config)
        if free_sequences and self.max_num_seqs > capacity.max_sequences:
            logger.info(
                "max_num_seqs is lowered from %d to %d, whose distributions fit history_gib=%s",
                self.max_num_seqs,
                capacity.max_sequences,
                options.history_gib,
            )
            self.max_num_seqs = capacity.max_sequences
        if free_tokens and self.max_num_batched_tokens < capacity.min_tokens:
            logger.info(
                "max_num_batched_tokens is raised from %d to %d: so much of one sequence is "
                "computed as a whole",
                self.max_num_batched_tokens,
                capacity.min_tokens,
            )
            self.max_num_batched_tokens = capacity.min_tokens
        capacity.check(self)
        # The configuration hook would do, but comes after a log line that says it is enabled.
        self.enable_chunked_prefill = options.kv_cache == "block"

    return set_defaults
