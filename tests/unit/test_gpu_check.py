"""The prepared GPU check, on a machine without a GPU."""

import subprocess
import sys

import pytest
import torch

from benchmarks import gpu_check
from benchmarks.gpu_check import Finding


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_it_says_that_there_is_no_device() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check"], capture_output=True, text=True
    )
    assert (run.returncode, run.stdout) == (2, "no CUDA device\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_section_that_fails_or_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu_check.LIMITS, "steps", 0.05)
    (finding,) = gpu_check.run_apart("steps", "cpu")
    assert finding == Finding("time limit", "not done after 0.05 s", False)
    (finding,) = gpu_check.run_apart("kernels", "cuda")
    assert finding.name == "failed" and not finding.ok
