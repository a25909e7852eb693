"""Speed of the KV policies of full-attention models, by prompt length, in one run.

    python -m benchmarks.kv_policies [--json kv_policies.json] [--prompts 64 512 2048] [--repeat 5]

A random LLaDA (weights do not matter for time) of about 6 million parameters answers 4 requests at
once under `none`, `prefix` and `dual`, with LLaDA's fixed schedule, so that every policy makes the
same number of forward evaluations. Prints medians, and ratios to `none`; writes JSON.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.models.checkpoints import write_llada

POLICIES = ("none", "prefix", "dual")
REQUESTS = 4
MAX_TOKENS = 64
BLOCK_LENGTH = 32
STEPS_PER_BLOCK = 16
SIZES = {
    "d_model": 256,
    "n_layers": 6,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": 768,
    "max_sequence_length": 4096,
}


@dataclass(frozen=True)
class Result:
    """Medians over the repeats."""

    policy: str
    prompt: int
    seconds: float
    tokens_per_second: float
    forwards_per_request: float


def start(path: Path, policy: str, max_model_len: int) -> Any:
    from vllm import LLM

    return LLM(
        str(path),
        dtype="float32",
        enforce_eager=True,
        skip_tokenizer_init=True,
        max_model_len=max_model_len,
        max_num_seqs=REQUESTS,
        max_num_batched_tokens=REQUESTS * max_model_len,
        kv_cache_memory_bytes=1 << 30,
        additional_config={
            "remix": {
                "kv_cache": policy,
                "decoding": "low_confidence",
                "block_length": BLOCK_LENGTH,
                "steps_per_block": STEPS_PER_BLOCK,
            }
        },
    )


def measure(llm: Any, policy: str, length: int, repeat: int) -> Result:
    """Time from the first request to the last answer."""
    from vllm import SamplingParams, TokensPrompt

    params = SamplingParams(max_tokens=MAX_TOKENS, ignore_eos=True, detokenize=False)
    rng = Random(length)
    seconds = []
    for _ in range(repeat + 1):
        prompts = [
            TokensPrompt(prompt_token_ids=[rng.randrange(1, 50) for _ in range(length)])
            for _ in range(REQUESTS)
        ]
        began = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds.append(time.perf_counter() - began)
    # The first round warms up.
    median = statistics.median(seconds[1:])
    forwards = [sum(o.outputs[0].spec_decode_metrics.histogram) for o in outputs]
    return Result(policy, length, median, REQUESTS * MAX_TOKENS / median, statistics.mean(forwards))


def table(results: list[Result]) -> str:
    """Markdown: one line per prompt length and policy."""
    lines = ["| prompt | kv_cache | s | tokens/s | NFE | speed against none |", "|---" * 6 + "|"]
    base = {r.prompt: r.seconds for r in results if r.policy == POLICIES[0]}
    for r in sorted(results, key=lambda r: (r.prompt, POLICIES.index(r.policy))):
        lines.append(
            f"| {r.prompt} | {r.policy} | {r.seconds:.2f} | {r.tokens_per_second:.0f} | "
            f"{r.forwards_per_request:.0f} | {base[r.prompt] / r.seconds:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, nargs="+", default=[64, 512, 2048])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_llada(Path(folder), **SIZES)
        for policy in POLICIES:
            llm = start(path, policy, max(arguments.prompts) + MAX_TOKENS)
            results += [measure(llm, policy, n, arguments.repeat) for n in arguments.prompts]
            del llm
    print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1))


if __name__ == "__main__":
    main()
