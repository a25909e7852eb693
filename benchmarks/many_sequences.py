"""Memory of many sequences at once, with LLaDA's vocabulary.

    python -m benchmarks.many_sequences [--sequences 256] [--dtype float32] [--history full]
        [--kv-cache dual] [--json FILE]

The random LLaDA of `load_models` (148 million parameters, 126,464 vocabulary rows) in this process:
that many prompts of 64 tokens, one block of 32 each, all in one batch from the first step to the
last, acceptance scripted to `--max-nfe` forwards as in `step_breakdown`. Prints the process's peak
resident memory and where it goes, as far as it can be calculated; writes JSON.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path
from random import Random

from benchmarks.load_models import large_model

PROMPT, BLOCK = 64, 32
GIB = 1 << 30


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
    from vllm import LLM, SamplingParams, TokensPrompt

    count = arguments.sequences
    llm = LLM(
        str(path),
        dtype=arguments.dtype,
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=PROMPT + BLOCK,
        max_num_seqs=count,
        max_num_batched_tokens=count * (PROMPT + BLOCK),
        kv_cache_memory_bytes=GIB,
        additional_config={
            "remix": {
                "block_length": BLOCK,
                "history": arguments.history,
                "kv_cache": arguments.kv_cache,
                "history_gib": 8,
            }
        },
    )
    rng = Random(0)
    prompts = [
        TokensPrompt(prompt_token_ids=[rng.randrange(1, 100_000) for _ in range(PROMPT)])
        for _ in range(count)
    ]
    options = {"threshold": 1.0, "max_nfe": arguments.max_nfe}
    params = SamplingParams(max_tokens=BLOCK, ignore_eos=True, detokenize=False, extra_args=options)
    began = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - began
    for output in outputs:
        completion = output.outputs[0]
        assert len(completion.token_ids) == BLOCK
        assert sum(completion.spec_decode_metrics.histogram) == arguments.max_nfe
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    history = runner.model_state.canvas.history
    tensors = [value for value in vars(history).values() if hasattr(value, "nbytes")]
    weights = sum(parameter.nbytes for parameter in runner.model.parameters())
    itemsize = next(runner.model.parameters()).itemsize
    return {
        "peak of the process, GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB,
        "weights, GiB": weights / GIB,
        "history, GiB": sum(tensor.nbytes for tensor in tensors) / GIB,
        "logits of a step, GiB": count * BLOCK * 126_464 * itemsize / GIB,
        "seconds per step": seconds / arguments.max_nfe,
        "tokens per second": count * BLOCK / seconds,
    }


if __name__ == "__main__":
    main()
