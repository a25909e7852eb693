"""Times the parts of a denoising step of an engine in this process.

On a CPU every call is synchronous, so seconds inside a function are its own.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any

from tests.models.runner import model_runner

INSIDE = {
    "sampler": ("scan", "candidates", "history"),
    "inputs": ("embedding",),
    "embedding": ("mixing",),
    "runner": ("forward", "LM head", "sampler", "inputs"),
}
"""Timed parts that contain others."""


class Stopwatch:
    """Adds up the seconds spent in wrapped functions, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[name] += time.perf_counter() - began

        return timed

    def own_seconds(self) -> dict[str, float]:
        """Seconds of each part without those of the parts inside it."""
        own = dict(self.seconds)
        for whole, parts in INSIDE.items():
            own[whole] = self.seconds[whole] - sum(self.seconds[part] for part in parts)
        return own

    def wrap(self, owner: Any, attribute: str, name: str) -> None:
        setattr(owner, attribute, self.timed(getattr(owner, attribute), name))


def instrument(llm: Any) -> Stopwatch:
    """Time the parts of the steps of an in-process engine; on a CPU their calls are synchronous."""
    from remix_vllm.decoding import step
    from remix_vllm.engine import model_state

    core = llm.llm_engine.engine_core.engine_core
    runner = model_runner(llm)
    history = runner.model_state.canvas.history
    watch = Stopwatch()
    watch.wrap(core.scheduler, "schedule", "scheduler")
    watch.wrap(core.scheduler, "update_from_output", "scheduler")
    watch.wrap(runner, "execute_model", "runner")
    watch.wrap(runner, "sample_tokens", "runner")
    watch.wrap(runner.model_state, "preprocess_state", "inputs")
    watch.wrap(runner.model_state, "prepare_inputs", "inputs")
    watch.wrap(runner.model_state, "prepare_attn", "inputs")
    watch.wrap(runner.model_state, "_embed", "embedding")
    watch.wrap(model_state, "mixed_embedding", "mixing")
    watch.wrap(runner.model, "forward", "forward")
    watch.wrap(runner.model, "compute_logits", "LM head")
    runner.sampler = TimedSampler(runner.sampler, watch)
    watch.wrap(runner.model_state.limits.passes, "scan", "scan")
    watch.wrap(step, "top_candidates", "candidates")
    watch.wrap(history, "replace", "history")
    return watch


class TimedSampler:
    """A sampler is called as an object, which cannot be patched on the instance."""

    def __init__(self, sampler: Any, watch: Stopwatch) -> None:
        self._sampler = sampler
        self._call = watch.timed(sampler, "sampler")

    def __call__(self, *args: Any) -> Any:
        return self._call(*args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)
