"""Time of a step that is not the model: scheduler, canvas state and sampler, by sequences.

    python -m benchmarks.host_overhead [--sequences 8 16 32 64] [--kv-cache none] [--json FILE]

A LLaDA so small that its own arithmetic hardly counts (two layers, 128 vocabulary rows) runs in
this process on one thread: prompts of 64 tokens, a block of 32, acceptance scripted to 16 forwards,
the rest mixes. Prints medians over the rounds of a step's mean; writes JSON.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.one_block import denoise, start
from benchmarks.stopwatch import Stopwatch, instrument
from tests.models.checkpoints import write_llada

NFE = 16
GROUPS = {
    "scheduler": ("scheduler",),
    "inputs": ("inputs",),
    "sampler": ("sampler",),
}
"""What is counted as the host's: planning, state and decisions."""
OTHERS = {
    "embeddings": ("embedding", "mixing"),
    "statistics": ("scan", "candidates", "history"),
}
"""Embeddings of all tokens of the step, and passes over the logits, which on a GPU are the
device's: shown, not counted."""


def one_round(llm: Any, watch: Stopwatch, sequences: int) -> dict[str, float]:
    """Mean milliseconds of each group in a step, and of the whole step."""
    watch.seconds.clear()
    denoise(llm, sequences, NFE, ids=100)
    own = watch.own_seconds()

    def milliseconds(groups: dict[str, tuple[str, ...]]) -> dict[str, float]:
        return {g: 1000 * sum(own[part] for part in parts) / NFE for g, parts in groups.items()}

    counted = milliseconds(GROUPS)
    return counted | {"host": sum(counted.values())} | milliseconds(OTHERS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--kv-cache", default="none", choices=["none", "prefix", "dual"])
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
    results: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = write_llada(Path(folder))
        llm = start(
            path,
            max(arguments.sequences),
            {"kv_cache": arguments.kv_cache},
            dtype="float32",
            enforce_eager=True,
            kv_cache_memory_bytes=1 << 28,
        )
        watch = instrument(llm)
        for sequences in arguments.sequences:
            rounds = [one_round(llm, watch, sequences) for _ in range(arguments.repeat + 1)][1:]
            results[sequences] = {
                name: statistics.median(r[name] for r in rounds) for name in rounds[0]
            }
    print("| ms per step, sequences | " + " | ".join([*GROUPS, "host", *OTHERS]) + " |")
    print("|---" * (len(GROUPS) + len(OTHERS) + 2) + "|")
    for sequences, result in results.items():
        print(f"| {sequences} | " + " | ".join(f"{v:.2f}" for v in result.values()) + " |")
    if arguments.json:
        settings = {k: v for k, v in vars(arguments).items() if k != "json"}
        arguments.json.write_text(json.dumps({"settings": settings, "ms": results}, indent=1))


if __name__ == "__main__":
    main()
