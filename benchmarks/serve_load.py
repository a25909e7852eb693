"""Throughput and latency under load: ReMix, its rivals, an autoregressive model, the literal loop.

    python -m benchmarks.serve_load [--quick] [--models shipped large] [--systems remix ar ...]
        [--concurrency 1 4 16 64] [--dtype float32 bfloat16] [--repeat 5] [--budget-seconds 45]
        [--json load.json] [--png load.png] [--resume]

Starts one server after the other and drives it with `vllm bench serve`. Every system gets the same
prompts, cores and limits. `shipped` answers questions of its tasks, tokens counted up to the stop
token; `large` (random weights, LLaDA's vocabulary) has a scripted number of forwards, since what it
predicts means nothing.
"""

import argparse
import tempfile
from pathlib import Path

from benchmarks.load_client import BenchClient
from benchmarks.load_models import MODELS
from benchmarks.load_report import report
from benchmarks.load_run import Load
from benchmarks.load_systems import REFERENCE, SYSTEMS

DEFAULT_SYSTEMS = (REFERENCE, "remix", "remix_dual", "threshold", "low_confidence", "ar")
CONCURRENCIES = (1, 4, 16, 64)
# For the estimate: a start with compilation, and the warm-up.
START_SECONDS = 90


def notes(options: argparse.Namespace) -> str:
    """What a reader of the numbers has to know."""
    return (
        f"Acceptance on `large` is scripted: its weights are random, so `threshold` is 1 and "
        f"`max_nfe` {options.max_nfe}, and each step decides an even share of 32 positions; "
        f"low_confidence decides one a step. On `shipped` the model decides.\n"
        f"ar is vLLM's Llama of the same dimensions with the same tensors; it writes 32 tokens on "
        f"`large`, on `shipped` as many as the right answer has.\n"
        f"Latencies between tokens are those between chunks; a chunk of a diffusion model holds "
        f"several tokens."
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    choices = (REFERENCE, *SYSTEMS)
    parser.add_argument("--systems", nargs="+", choices=choices)
    parser.add_argument("--concurrency", type=int, nargs="+", default=list(CONCURRENCIES))
    dtypes = ("float32", "bfloat16")
    parser.add_argument("--dtype", nargs="+", choices=dtypes, default=["float32"])
    parser.add_argument("--repeat", type=int, default=5, help="most runs of a cell")
    parser.add_argument(
        "--budget-seconds",
        type=float,
        default=45,
        help="runs of a cell stop before this, after one",
    )
    parser.add_argument(
        "--min-requests", type=int, default=8, help="large: of a run; shipped: 4 times"
    )
    parser.add_argument("--max-nfe", type=int, default=8, help="forwards of a scripted request")
    parser.add_argument("--enforce-eager", action="store_true", help="no compilation, for all")
    parser.add_argument("--quick", action="store_true", help="shipped at 1 and 4, one run, eager")
    parser.add_argument("--json", type=Path, help="write the results here after each system")
    parser.add_argument("--png", type=Path, help="draw throughput against concurrency here")
    parser.add_argument("--resume", action="store_true", help="skip what --json has already")
    options = parser.parse_args()
    if options.systems is None:
        options.systems = [s for s in DEFAULT_SYSTEMS if not (options.quick and s == "remix_dual")]
    if options.quick:
        options.models, options.concurrency = ["shipped"], [1, 4]
        options.repeat, options.enforce_eager = 1, True
    return options


def main() -> None:
    options = parse()
    with BenchClient() as client, tempfile.TemporaryDirectory() as folder:
        load = Load(options, client, notes(options))
        servers = [name for name in options.systems if name != REFERENCE]
        most = len(servers) * (START_SECONDS + len(options.concurrency) * options.budget_seconds)
        most *= len(options.models) * len(options.dtype)
        load.say(f"{most / 60:.0f} minutes at most, unless a single run exceeds the budget")
        for name in options.models:
            (Path(folder) / name).mkdir()
            model = MODELS[name](Path(folder) / name)
            load.say(f"{name}: {model.parameters / 1e6:.1f} million parameters")
            for dtype in options.dtype:
                load.measure(model, dtype)
    print(f"\n{report(load.cells)}\n\n{notes(options)}")
    if load.failures:
        raise SystemExit(f"failed: {'; '.join(load.failures)}")


if __name__ == "__main__":
    main()
