"""The literal loop of `remix_vllm.decoding.reference` on the plain model, request after request.

Run as a module it prints its measurement as JSON; a process of its own, so that its memory can be
told.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.load_models import Model
from benchmarks.load_systems import MEMORY, SYSTEMS, cores

REQUESTS = 8


def measure_reference(
    model: Model, dtype: str, max_nfe: int, repeat: int, budget_seconds: float
) -> dict[str, Any]:
    """Requests with ReMix's options: `runs`, each a list of the requests' `seconds`, `tokens` and
    `nfe`, and `peak_bytes`. One request at least, the rest as the budget allows.

    Raises:
        RuntimeError: it failed; the text has the end of its output.
    """
    work = {
        "checkpoint": str(model.llada),
        "prompts": str(model.prompts),
        "max_tokens": model.max_tokens,
        "ignore_eos": model.scripted,
        "options": SYSTEMS["remix"].options(model, max_nfe),
        "dtype": dtype,
        "repeat": repeat,
        "budget_seconds": budget_seconds,
    }
    command = [sys.executable, "-m", "benchmarks.load_reference", json.dumps(work)]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | MEMORY)
    if ended.returncode:
        raise RuntimeError(f"the reference loop ended with {ended.stderr[-2000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def measure(work: dict[str, Any]) -> dict[str, Any]:
    import torch
    from transformers import AutoTokenizer

    from remix_vllm.config import EngineOptions
    from tests.models.oracle import Oracle, PlainReference

    torch.set_num_threads(len(cores()))
    path = Path(work["checkpoint"])
    oracle = Oracle.load(path)
    plain = oracle.model.model.to(getattr(torch, work["dtype"]))
    oracle.model = PlainReference(plain)
    engine = EngineOptions.parse(work["options"], default_block_length=128)
    tokenizer = AutoTokenizer.from_pretrained(path)
    turns = json.loads(Path(work["prompts"]).read_text())
    texts = [turn["conversations"][0]["value"] for turn in turns[:REQUESTS]]
    prompts = [tokenizer(text).input_ids for text in texts]

    # The first forward of a process is slow.
    oracle.generate(prompts[0], 1, engine=engine, ignore_eos=True)
    runs: list[list[dict[str, float]]] = []
    spent = seconds = 0.0
    while len(runs) < work["repeat"] and spent + seconds * len(prompts) < work["budget_seconds"]:
        runs.append([])
        for prompt in prompts:
            began = time.perf_counter()
            answer = oracle.generate(prompt, work["max_tokens"], None, engine, work["ignore_eos"])
            seconds = time.perf_counter() - began
            runs[-1].append(
                {"seconds": seconds, "tokens": len(answer.token_ids), "nfe": answer.nfe}
            )
            spent += seconds
            if spent + seconds > work["budget_seconds"]:
                break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return {"runs": runs, "peak_bytes": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=json.loads)
    print(json.dumps(measure(parser.parse_args().work)))


if __name__ == "__main__":
    main()
