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
from random import Random
from typing import Any

from benchmarks.stopwatch import Stopwatch, instrument
from tests.models.checkpoints import write_llada

PROMPT, BLOCK, NFE = 64, 32, 16
GROUPS = {
    "scheduler": ("scheduler",),
    "inputs": ("inputs", "mixing"),
    "sampler": ("sampler",),
}
"""What is counted as the host's: planning, state and decisions."""
STATISTICS = ("scan", "candidates", "history")
"""Passes over the logits, which on a GPU are the device's: shown, not counted."""


def start(path: Path, kv_cache: str, sequences: int) -> Any:
    from vllm import LLM

    return LLM(
        str(path),
        dtype="float32",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=PROMPT + BLOCK,
        max_num_seqs=sequences,
        max_num_batched_tokens=sequences * (PROMPT + BLOCK),
        kv_cache_memory_bytes=1 << 28,
        additional_config={"remix": {"block_length": BLOCK, "kv_cache": kv_cache}},
    )


def one_round(llm: Any, watch: Stopwatch, sequences: int) -> dict[str, float]:
    """Mean milliseconds of each group in a step, and of the whole step."""
    from vllm import SamplingParams, TokensPrompt

    rng = Random(0)
    prompts = [
        TokensPrompt(prompt_token_ids=[rng.randrange(1, 100) for _ in range(PROMPT)])
        for _ in range(sequences)
    ]
    options = {"threshold": 1.0, "max_nfe": NFE}
    params = SamplingParams(max_tokens=BLOCK, ignore_eos=True, detokenize=False, extra_args=options)
    watch.seconds.clear()
    llm.generate(prompts, params, use_tqdm=False)
    own = watch.own_seconds()
    groups = {g: 1000 * sum(own.get(p, 0.0) for p in parts) / NFE for g, parts in GROUPS.items()}
    host = sum(groups.values())
    return groups | {"host": host, "statistics": 1000 * sum(own[p] for p in STATISTICS) / NFE}


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
        llm = start(path, arguments.kv_cache, max(arguments.sequences))
        watch = instrument(llm)
        for sequences in arguments.sequences:
            rounds = [one_round(llm, watch, sequences) for _ in range(arguments.repeat + 1)][1:]
            results[sequences] = {
                name: statistics.median(r[name] for r in rounds) for name in rounds[0]
            }
    print(
        "| sequences | " + " | ".join(f"{name}, ms per step" for name in [*GROUPS, "host"]) + " |"
    )
    print("|---" * (len(GROUPS) + 2) + "|")
    for sequences, result in results.items():
        print(f"| {sequences} | " + " | ".join(f"{v:.2f}" for v in result.values()) + " |")
    if arguments.json:
        settings = {k: v for k, v in vars(arguments).items() if k != "json"}
        arguments.json.write_text(json.dumps({"settings": settings, "ms": results}, indent=1))


if __name__ == "__main__":
    main()
