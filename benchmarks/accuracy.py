"""Accuracy and forward evaluations of the shipped model on the held-out tasks, through the engine.

    python -m benchmarks.accuracy [--count 200] [--json accuracy.json] [--decoding NAME=JSON ...]
        [--remix-config JSON]

Every decoding answers the same questions, all given to one engine at once. Prints a Markdown table
and writes JSON. The default decodings are one token per step, threshold and remix, as a request
would name them; ``--decoding`` replaces them, for example ``--decoding 'low beta={"beta_mix":
0.3}'``.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import remix_vllm
from benchmarks.tasks import TASKS, examples

MODEL = Path(remix_vllm.__file__).parent / "assets" / "tiny-llada"
MAX_TOKENS = 48
SEED = 2024
DECODINGS: dict[str, dict[str, Any]] = {
    "low_confidence, one token per step": {"decoding": "low_confidence"},
    "threshold 0.95": {"decoding": "threshold", "threshold": 0.95},
    "threshold 0.9": {"decoding": "threshold", "threshold": 0.9},
    "threshold 0.8": {"decoding": "threshold", "threshold": 0.8},
    "remix (default: 0.95)": {},
    "remix at 0.9": {"threshold": 0.9},
    "remix at 0.8": {"threshold": 0.8},
    "remix, preset paper (0.8)": {"preset": "paper"},
    "remix, preset official (0.8)": {"preset": "official"},
}


@dataclass(frozen=True)
class Result:
    """What one decoding did on one task."""

    decoding: str
    task: str
    examples: int
    accuracy: float
    nfe: float
    tokens_per_forward: float


def start(model: str, remix: dict[str, Any]) -> Any:
    """An engine that takes 64 questions at once."""
    from vllm import LLM

    return LLM(
        model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=64,
        max_num_batched_tokens=8192,
        kv_cache_memory_bytes=1 << 29,
        additional_config={"remix": remix},
    )


def measure(llm: Any, decodings: dict[str, dict[str, Any]], count: int) -> list[Result]:
    """Answers of every decoding to ``count`` held-out questions of each task."""
    from vllm import SamplingParams

    results = []
    for name, options in decodings.items():
        params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, extra_args=options)
        for task_name, task in TASKS.items():
            questions = [e.prompt for e in islice(examples(task, SEED, held_out=True), count)]
            outputs = llm.chat(
                [[{"role": "user", "content": question}] for question in questions],
                params,
                use_tqdm=False,
            )
            answers = [output.outputs[0] for output in outputs]
            right = sum(
                task.check(question, answer.text)
                for question, answer in zip(questions, answers, strict=True)
            )
            forwards = sum(sum(a.spec_decode_metrics.histogram) for a in answers)
            tokens = sum(len(a.token_ids) for a in answers)
            results.append(
                Result(name, task_name, count, right / count, forwards / count, tokens / forwards)
            )
    return results


def table(results: Sequence[Result]) -> str:
    """Markdown: one line per decoding, accuracy / NFE / tokens per forward in each task's
    column."""
    tasks = list(dict.fromkeys(r.task for r in results))
    lines = ["| decoding | " + " | ".join(tasks) + " | mean |", "|---" * (len(tasks) + 2) + "|"]
    for decoding in dict.fromkeys(r.decoding for r in results):
        row = [r for r in results if r.decoding == decoding]
        cells = [f"{r.accuracy:.1%} / {r.nfe:.2f} / {r.tokens_per_forward:.2f}" for r in row]
        accuracy = sum(r.accuracy for r in row) / len(row)
        nfe = sum(r.nfe for r in row) / len(row)
        lines.append(f"| {decoding} | " + " | ".join(cells) + f" | {accuracy:.1%} / {nfe:.2f} |")
    return "\n".join(lines)


def parse_decodings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """``NAME=JSON`` arguments as named request options."""
    named = (text.partition("=") for text in texts)
    return {name: json.loads(value) for name, _, value in named}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--count", type=int, default=200, help="questions per task")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--decoding", action="append", metavar="NAME=JSON")
    parser.add_argument("--remix-config", type=json.loads, default={}, help="the engine's options")
    arguments = parser.parse_args()
    llm = start(arguments.model, arguments.remix_config)
    decodings = parse_decodings(arguments.decoding or ()) or DECODINGS
    results = measure(llm, decodings, arguments.count)
    print(
        f"\naccuracy / NFE per answer / tokens per forward, {arguments.count} questions per task\n"
    )
    print(table(results))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in results], indent=1))


if __name__ == "__main__":
    main()
