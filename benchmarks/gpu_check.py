"""Five minutes on one GPU: do the kernels and the engine compute there what they do on a CPU?

    python -m benchmarks.gpu_check [--sections kernels eager graphs steps] [--json gpu_check.json]

Prepared on a machine without a GPU: nobody has run it on one yet, so the first failures may be its
own. `--device cpu` runs the section `eager` on vLLM's CPU build; with `--sections` also `steps`, on
a tiny model. The checks of `kernels` have run in Triton's interpreter, its timings nowhere.

========  ==========================================================================================
kernels   each Triton kernel against torch, and alone with the memory bandwidth it reaches
eager     mixed requests on the shipped model, float32: token ids and NFE against the oracle
graphs    the same with compilation and CUDA graphs, also against an eager engine
steps     step times of `remix` and `threshold` decoding on a random LLaDA with the real vocabulary
========  ==========================================================================================

A section has a process of its own and a time limit; if it fails the others run all the same. Exit
status: 0, 1 if something differs or fails, 2 without a CUDA device.

A request may differ from the oracle by rounding alone, where a confidence is near its threshold:
before looking for an error look at how many do, and how late.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

LIMITS: dict[str, float] = {"kernels": 60, "eager": 70, "graphs": 100, "steps": 90}
"""Seconds."""


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    value: str
    ok: bool = True
    """False is a mismatch; a measurement is always true."""


def section_findings(section: str, device: str) -> list[Finding]:
    """Run a section in this process."""
    if section == "kernels":
        from benchmarks.gpu_kernels import kernels

        return kernels(torch.device(device))
    from benchmarks import gpu_engine

    return {"eager": gpu_engine.eager, "graphs": gpu_engine.graphs, "steps": gpu_engine.steps}[
        section
    ](device)


def run_apart(section: str, device: str) -> list[Finding]:
    """Run a section in another process; what goes wrong with it is a finding too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "findings.json"
        arguments = ["--device", device, "--alone", section, "--json", str(path)]
        # In-process engines start sooner, and leave nothing behind when they are stopped.
        env = os.environ | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "HF_HUB_OFFLINE": "1"}
        # vLLM's Triton attention, the one for float32, multiplies in TF32 if nobody says otherwise.
        env |= {"TRITON_F32_DEFAULT": "ieee"}
        try:
            run = subprocess.run(
                [sys.executable, "-m", "benchmarks.gpu_check", *arguments],
                env={"VLLM_LOGGING_LEVEL": "WARNING"} | env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMITS[section],
            )
        except subprocess.TimeoutExpired as error:
            # Bytes even of a text stream.
            output = (error.stdout or b"").decode(errors="replace")
            print(output[-4000:], file=sys.stderr)
            return [Finding("time limit", f"not done after {LIMITS[section]} s", False)]
        if path.exists():
            return [Finding(**finding) for finding in json.loads(path.read_text())]
        print(run.stdout[-4000:], file=sys.stderr)
        last = run.stdout.strip().splitlines()[-1:] or ["no output"]
        return [Finding("failed", f"exit status {run.returncode}: {last[0][:200]}", False)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sections", nargs="+", choices=LIMITS, help="default: all of the device")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path, help="write the findings here")
    parser.add_argument("--alone", choices=LIMITS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device")
        return 2
    if arguments.alone:
        findings = section_findings(arguments.alone, arguments.device)
        arguments.json.write_text(json.dumps([asdict(finding) for finding in findings]))
        return 0

    print(f"torch {torch.__version__}, {_device_name(arguments.device)}", flush=True)
    report = {}
    for section in arguments.sections or (LIMITS if arguments.device == "cuda" else ["eager"]):
        report[section] = run_apart(section, arguments.device)
        for finding in report[section]:
            mark = "ok" if finding.ok else "FAIL"
            print(f"{section:8} {finding.name:44} {mark:5} {finding.value}", flush=True)
        if arguments.json:
            written = {name: [asdict(f) for f in findings] for name, findings in report.items()}
            arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    return 0 if all(finding.ok for findings in report.values() for finding in findings) else 1


def _device_name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else "CPU"


if __name__ == "__main__":
    sys.exit(main())
