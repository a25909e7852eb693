"""How often the rejection rule decides otherwise on the compact history than on the full one.

    python -m benchmarks.history_flips [--count 40] [--json flips.json]

Twice. On the shipped model, which answers held-out questions of its tasks in this process, with an
engine whose history is both forms at once: the full one decides, the compact one is asked the same.
And on made-up logits with LLaDA's vocabulary of 126,464: a Gaussian row of a given spread and a
second one at a given distance from it, of which only those count whose divergence comes near a
threshold in use. Prints tables; writes JSON.
"""

import argparse
import json
import os
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.accuracy import MAX_TOKENS, MODEL, SEED, start
from benchmarks.tasks import TASKS, examples
from remix_vllm.decoding.history import CompactHistory, FullHistory
from remix_vllm.decoding.state import TOP_K
from remix_vllm.ops.candidates import Candidates, top_candidates
from remix_vllm.ops.row_kernels import RowKernels
from remix_vllm.ops.row_passes import Compared, TorchPasses
from remix_vllm.ops.row_scan import RowScan
from tests.models.runner import model_runner

OPTIONS: dict[str, dict[str, Any]] = {
    "remix (default)": {},
    "remix, js_threshold 0.05": {"js_threshold": 0.05},
    "preset paper": {"preset": "paper"},
    "preset official": {"preset": "official"},
}
VOCABULARY, ROWS = 126_464, 64
SPREADS = (2.0, 4.0, 6.0, 10.0)
"""Standard deviations of the logits: from flat rows to a top probability near 1."""
CHANGES = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5, 2.0)
"""Standard deviations of what a step adds to them."""
THRESHOLDS = (0.05, 0.1, 0.3)


class BothHistories:
    """The full form decides; the compact one is asked, and counted where it says otherwise."""

    def __init__(self, full: FullHistory, compact: CompactHistory) -> None:
        self.full, self.compact = full, compact
        self.counts: Counter[str] = Counter()

    def replace(
        self, logits: Tensor, scan: RowScan, candidates: Candidates, compared: Compared
    ) -> Tensor:
        exact = self.full.replace(logits, scan, candidates, compared)
        other = self.compact.replace(logits, scan, candidates, compared)
        self.counts["compared"] += int(compared.compared.sum())
        self.counts["rejected"] += int(exact.sum())
        self.counts["missed"] += int((exact & ~other).sum())
        self.counts["added"] += int((other & ~exact).sum())
        return exact

    def clear(self, at: Tensor, which: Tensor) -> None:
        self.full.clear(at, which)
        self.compact.clear(at, which)


def shipped(count: int) -> dict[str, Counter[str]]:
    """Comparisons while the shipped model answers ``count`` questions of each task."""
    from vllm import SamplingParams

    llm = start(str(MODEL), {})
    canvas = model_runner(llm).model_state.canvas
    compact = CompactHistory(len(canvas.mixed), canvas.vocab_size, canvas.top_k, canvas.device)
    both = canvas.history = BothHistories(canvas.history, compact)
    chats = [
        [{"role": "user", "content": example.prompt}]
        for task in TASKS.values()
        for example in islice(examples(task, SEED, held_out=True), count)
    ]
    results = {}
    for name, options in OPTIONS.items():
        both.counts = Counter()
        params = SamplingParams(temperature=0, max_tokens=MAX_TOKENS, extra_args=options)
        llm.chat(chats, params, use_tqdm=False)
        results[name] = both.counts
    return results


def made_up() -> dict[str, Counter[str]]:
    """Comparisons of rows whose divergence lies between half of a threshold and its double."""
    device = torch.device("cpu")
    passes = TorchPasses(VOCABULARY, RowKernels())
    places = torch.arange(ROWS)
    every = torch.ones(ROWS, dtype=torch.bool)
    results: dict[str, Counter[str]] = {}
    generator = torch.Generator().manual_seed(0)
    for spread in SPREADS:
        counts: Counter[str] = Counter()
        held = 0.0
        for change in CHANGES:
            old = spread * torch.randn(ROWS, VOCABULARY, generator=generator)
            new = old + change * torch.randn(ROWS, VOCABULARY, generator=generator)
            held = float(old.softmax(-1).topk(TOP_K).values.sum(-1).mean())
            lse, old_lse = new.logsumexp(-1), old.logsumexp(-1)
            divergence = RowKernels().divergence(new, lse, places, old, old_lse, places)
            for threshold in THRESHOLDS:
                limits = torch.full((ROWS,), threshold)
                full = FullHistory(ROWS, VOCABULARY, torch.float32, device, passes)
                both = BothHistories(full, CompactHistory(ROWS, VOCABULARY, TOP_K, device))
                near = (divergence > threshold / 2) & (divergence < threshold * 2)
                for logits, compared in ((old, ~every), (new, near)):
                    scan = passes.scan(logits)
                    candidates = top_candidates(logits, scan, places, TOP_K)
                    rows = Compared(places, places, compared, every, limits)
                    both.replace(logits, scan, candidates, rows)
                counts += both.counts
        results[f"spread {spread:g}: {TOP_K} tokens hold {held:.0%}"] = counts
    return results


def table(results: dict[str, Counter[str]]) -> str:
    lines = ["| | compared | rejected | missed | added | decided otherwise |", "|---" * 6 + "|"]
    for name, counts in results.items():
        compared = counts["compared"]
        share = 100 * (counts["missed"] + counts["added"]) / max(compared, 1)
        numbers = (compared, counts["rejected"], counts["missed"], counts["added"])
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} | {share:.2f} % |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=40, help="questions per task")
    parser.add_argument("--json", type=Path, help="write the results here")
    arguments = parser.parse_args()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    random_rows = made_up()
    model = shipped(arguments.count)
    print(f"\nshipped model, {arguments.count} questions of each task\n\n{table(model)}")
    print(f"\nmade-up logits, V = {VOCABULARY}, near a threshold\n\n{table(random_rows)}")
    if arguments.json:
        report = {"count": arguments.count, "shipped": model, "made_up": random_rows}
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
