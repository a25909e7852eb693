"""What was measured of one system at one concurrency."""

import statistics
from dataclasses import dataclass
from typing import Any

PERCENTILES = (50, 99)
LATENCIES = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True)
class Cell:
    """A system at a concurrency: several runs of the same requests."""

    model: str
    dtype: str
    system: str
    concurrency: int | None
    """None for the reference loop, which takes one request after the other."""
    requests: int
    """Per run."""
    runs: list[dict[str, float]]
    """Values of each run, by name."""
    peak_gib: float
    scripted: bool
    """The options, not the model, say how many positions a step decides."""
    server: str
    """Flags of `vllm serve`."""
    client: str
    """Arguments of `vllm bench serve`."""

    @property
    def key(self) -> tuple[str, str, str, int | None]:
        return self.model, self.dtype, self.system, self.concurrency

    def values(self, name: str) -> list[float]:
        return [run[name] for run in self.runs]

    def median(self, name: str) -> float:
        return statistics.median(self.values(name))

    @property
    def speed(self) -> float:
        """Output tokens per second."""
        return self.median("tokens_per_second")


def run_values(result: dict[str, Any], forwards: float | None) -> dict[str, float]:
    """Values of a run, out of what `vllm bench serve` saves.

    Args:
        forwards: evaluations summed over the requests; None for a causal model, one per token.
    """
    tokens, requests = result["total_output_tokens"], result["completed"]
    forwards = tokens if forwards is None else forwards
    values = {
        "seconds": result["duration"],
        "output_tokens": tokens,
        "tokens_per_second": result["output_throughput"],
        "nfe": forwards / requests,
        "tokens_per_forward": tokens / forwards,
    }
    for latency in LATENCIES:
        for percentile in PERCENTILES:
            values[f"{latency}_p{percentile}_ms"] = result[f"p{percentile}_{latency}_ms"]
    return values


def reference_values(requests: list[dict[str, float]]) -> dict[str, float]:
    """The same of the reference loop's requests; it returns an answer in one piece."""
    seconds, tokens, forwards = (
        sum(request[name] for request in requests) for name in ("seconds", "tokens", "nfe")
    )
    values = {
        "seconds": seconds,
        "output_tokens": tokens,
        "tokens_per_second": tokens / seconds,
        "nfe": forwards / len(requests),
        "tokens_per_forward": tokens / forwards,
    }
    waits = sorted(1000 * request["seconds"] for request in requests)
    for percentile in PERCENTILES:
        wait = waits[round((len(waits) - 1) * percentile / 100)]
        values |= {f"ttft_p{percentile}_ms": wait, f"e2el_p{percentile}_ms": wait}
    return values
