"""Where a denoising step spends its time, and what ReMix adds to threshold decoding.

    python -m benchmarks.step_breakdown [--dtype float32] [--sequences 8] [--eager] [--json FILE]

The random LLaDA of `load_models` (148 million parameters, the real vocabulary of 126,464 rows)
runs in this process: prompts of 64 tokens, one block of 32, `--sequences` requests at once,
acceptance scripted to 8 forwards (`one_block`). Rounds of the decodings take turns in one engine.
Prints medians over the rounds of a step's mean; writes JSON.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.load_models import large_model
from benchmarks.one_block import denoise, start
from benchmarks.stopwatch import Stopwatch, instrument

NFE = 8
DECODINGS = ("remix", "threshold")
PARTS = {
    "forward": "model forward, without the head",
    "LM head": "logits of the undecided positions",
    "scan": "top and normaliser of each row",
    "candidates": "ReMix: mixing candidates",
    "history": "ReMix: divergence from the history, and writing it",
    "sampler": "the rest of the sampler",
    "mixing": "ReMix: mixed embeddings",
    "embedding": "embeddings of the other tokens",
    "inputs": "the rest of the inputs",
    "scheduler": "vLLM's scheduler and ours",
    "runner": "the rest of vLLM's runner",
}


def one_round(llm: Any, watch: Stopwatch, decoding: str, sequences: int) -> dict[str, float]:
    """Mean milliseconds of each part of a step."""
    watch.seconds.clear()
    denoise(llm, sequences, NFE, ids=100_000, decoding=decoding)
    own = watch.own_seconds()
    return {part: 1000 * own.get(part, 0.0) / NFE for part in PARTS}


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    result = {part: statistics.median(r[part] for r in rounds) for part in PARTS}
    return result | {"step": statistics.median(sum(r.values()) for r in rounds)}


def table(results: dict[str, dict[str, float]]) -> str:
    names = list(results)
    lines = [f"| ms per step | {' | '.join(names)} | |", "|---" * (len(names) + 2) + "|"]
    for part, meaning in [*PARTS.items(), ("step", "")]:
        cells = [
            f"{results[n][part]:.1f} ({100 * results[n][part] / results[n]['step']:.1f} %)"
            for n in names
        ]
        lines.append(f"| {part} | {' | '.join(cells)} | {meaning} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--history", default="full", choices=["full", "compact"])
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()
    # In this process, with all cores for torch.
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in DECODINGS}
    with tempfile.TemporaryDirectory() as folder:
        llm = start(
            large_model(Path(folder)).llada,
            arguments.sequences,
            {"history": arguments.history},
            dtype=arguments.dtype,
            enforce_eager=arguments.eager,
            kv_cache_memory_bytes=1 << 30,
        )
        watch = instrument(llm)
        for n in range(arguments.repeat + 1):
            for name in DECODINGS:
                result = one_round(llm, watch, name, arguments.sequences)
                # The first round warms up.
                if n:
                    rounds[name].append(result)
    results = {name: medians(rounds[name]) for name in DECODINGS}
    print(table(results))
    added = [
        100 * (sum(a.values()) - sum(b.values())) / sum(a.values())
        for a, b in zip(rounds["remix"], rounds["threshold"], strict=True)
    ]
    own = 100 * sum(results["remix"][p] for p in PARTS if PARTS[p].startswith("ReMix"))
    print(
        f"ReMix adds {statistics.median(added):.1f} % of a step over threshold decoding "
        f"({min(added):.1f} to {max(added):.1f} over {len(added)} pairs of rounds); its three "
        f"parts are {own / results['remix']['step']:.1f} %"
    )
    if arguments.json:
        settings = {k: v for k, v in vars(arguments).items() if k != "json"}
        report = {"settings": settings, "milliseconds": results, "added_percent": added}
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
