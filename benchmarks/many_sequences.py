"""Memory of many sequences at once, with LLaDA's vocabulary.

    python -m benchmarks.many_sequences [--sequences 256] [--dtype float32] [--history full]
        [--kv-cache dual] [--json FILE]

The random LLaDA of `load_models` (148 million parameters, 126,464 vocabulary rows) in this process:
that many prompts of 64 tokens, one block of 32 each, all in one batch from the first step to the
last, acceptance scripted to `--max-nfe` forwards. Prints the process's peak
resident memory and where it goes, as far as it can be calculated; writes JSON.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

from benchmarks.load_memory import GIB
from benchmarks.load_models import LARGE_CONFIG, large_model
from benchmarks.one_block import BLOCK, denoise, start
from tests.models.runner import model_runner


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--history", default="full", choices=["full", "compact"])
    parser.add_argument("--kv-cache", default="dual", choices=["none", "prefix", "dual"])
    parser.add_argument("--max-nfe", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, large_model(Path(folder)).llada)
    for name, value in result.items():
        print(f"{name:24} {value:.2f}")
    if arguments.json:
        settings = {k: v for k, v in vars(arguments).items() if k != "json"}
        arguments.json.write_text(json.dumps({"settings": settings, "results": result}, indent=1))


def measure(arguments: argparse.Namespace, path: Path) -> dict[str, float]:
    count = arguments.sequences
    remix = {"history": arguments.history, "kv_cache": arguments.kv_cache, "history_gib": 8}
    llm = start(
        path,
        count,
        remix,
        dtype=arguments.dtype,
        enforce_eager=True,
        kv_cache_memory_bytes=GIB,
    )
    began = time.perf_counter()
    denoise(llm, count, arguments.max_nfe, ids=100_000)
    seconds = time.perf_counter() - began
    runner = model_runner(llm)
    history = runner.model_state.canvas.history
    tensors = [value for value in vars(history).values() if hasattr(value, "nbytes")]
    weights = sum(parameter.nbytes for parameter in runner.model.parameters())
    itemsize = next(runner.model.parameters()).itemsize
    return {
        "peak of the process, GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB,
        "weights, GiB": weights / GIB,
        "history, GiB": sum(tensor.nbytes for tensor in tensors) / GIB,
        "logits of a step, GiB": count * BLOCK * LARGE_CONFIG["vocab_size"] * itemsize / GIB,
        "seconds per step": seconds / arguments.max_nfe,
        "tokens per second": count * BLOCK / seconds,
    }


if __name__ == "__main__":
    main()
