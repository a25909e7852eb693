"""How many sequences and tokens one step may hold."""

from typing import NoReturn

from vllm.config import ModelConfig, SchedulerConfig
from vllm.engine.arg_utils import EngineArgs

from remix_vllm.config import EngineOptions
from remix_vllm.engine.statistics import history_bytes_per_sequence

GIB = 1 << 30


class Capacity:
    """Bounds on a step's sequences and tokens, from the model and the engine's options."""

    def __init__(self, options: EngineOptions, model_config: ModelConfig) -> None:
        self.options = options
        self.min_tokens: int = model_config.max_model_len
        """Tokens a step must have room for: a whole sequence, of which it computes all or nothing;
        for a block-causal model the block just decided and the active one."""
        if options.kv_cache == "block":
            self.min_tokens = 2 * options.window
        self.bytes_per_sequence = history_bytes_per_sequence(options, model_config)

    @property
    def max_sequences(self) -> int:
        """Sequences whose distributions fit ``history_gib``.

        Raises:
            ValueError: not even one fits.
        """
        count = int(self.options.history_gib * GIB / self.bytes_per_sequence)
        if count < 1:
            raise ValueError(
                f"remix option history_gib={self.options.history_gib}: one sequence needs "
                f"{self._gib(1)} GiB ({self._formula()}); allowed is at least that, or a smaller "
                f"block_length"
            )
        return count

    def check(self, scheduler: SchedulerConfig | EngineArgs) -> None:
        """Check a scheduler's limits; vLLM's arguments give them the same names.

        Raises:
            ValueError: the text names the parameter, its value and what is allowed.
        """
        if scheduler.max_num_seqs > self.max_sequences:
            raise ValueError(
                f"max_num_seqs={scheduler.max_num_seqs}: the distributions of so many sequences "
                f"take {self._gib(scheduler.max_num_seqs)} GiB ({self._formula()}), and remix "
                f"option history_gib is {self.options.history_gib}; allowed is at most "
                f"{self.max_sequences}, or a larger history_gib"
            )
        if scheduler.max_num_batched_tokens < self.min_tokens:
            self._refuse_tokens("max_num_batched_tokens", scheduler.max_num_batched_tokens)
        scheduled = scheduler.max_num_scheduled_tokens
        if scheduled is not None and scheduled < self.min_tokens:
            self._refuse_tokens("max_num_scheduled_tokens", scheduled)

    def _refuse_tokens(self, name: str, value: int) -> NoReturn:
        raise ValueError(
            f"{name}={value}: a step computes {self._unit()}; allowed is at least as many "
            f"({self.min_tokens})"
        )

    def _unit(self) -> str:
        if self.options.kv_cache == "block":
            return f"up to two blocks of {self.options.window} positions of a sequence at once"
        return "whole sequences of up to max_model_len positions (which can be lowered)"

    def _gib(self, sequences: int) -> str:
        return f"{sequences * self.bytes_per_sequence / GIB:.3g}"

    def _formula(self) -> str:
        rows = self.options.history_rows
        return f"{rows} positions x {self.bytes_per_sequence // rows} bytes per sequence"
