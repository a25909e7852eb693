"""Models under the KV policies whose steps differ in kind, each with its oracle and requests."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remix_vllm.config import EngineOptions
from tests.engine.test_exactness import mixed_requests
from tests.engine.test_kv_policies import without_whole_region
from tests.engine.test_sdar_exactness import SDAR
from tests.engine.test_sdar_exactness import mixed_requests as sdar_requests
from tests.models.cached_llada import CachedReference
from tests.models.engines import EngineSpec, ask, start_engine
from tests.models.oracle import Oracle

Requests = list[tuple[list[int], int, dict[str, Any]]]

SHIPPED = Path(__file__).parents[2] / "remix_vllm" / "assets" / "tiny-llada"


class LLaDA:
    """The shipped checkpoint: an engine, and the oracle on the same weights."""

    def __init__(self, remix: dict[str, Any], **arguments: Any) -> None:
        self.oracle = Oracle.load(SHIPPED)
        self.options = EngineOptions.parse(remix, default_block_length=128)
        arguments |= {"additional_config": {"remix": remix}}
        self.llm = start_engine(EngineSpec.of(SHIPPED, arguments))

    def check(self, requests: Requests) -> None:
        answers = ask(self.llm, requests)
        self.oracle.check(requests, answers, self.options, make_model=self._approximation)

    def _approximation(self) -> CachedReference | None:
        """A fresh one for each request: it remembers keys and values."""
        if self.options.kv_cache == "none":
            return None
        return CachedReference(self.oracle.model.model, self.options.kv_cache)


@dataclass(frozen=True)
class Workload:
    """How to start an engine, given a folder for a checkpoint and more engine arguments; and
    requests that it can serve, given their number and a seed."""

    start: Callable[..., LLaDA | SDAR]
    requests: Callable[[int, int], Requests]


WORKLOADS = {
    "llada-none": Workload(lambda folder, **more: LLaDA({}, **more), mixed_requests),
    "llada-prefix": Workload(
        lambda folder, **more: LLaDA({"kv_cache": "prefix", "block_length": 8}, **more),
        without_whole_region,
    ),
    # Each rank has one of two key heads; prefills come in chunks, prefixes are shared.
    "sdar-block": Workload(lambda folder, **more: SDAR(folder, 8, **more), sdar_requests),
}
