"""What a step frees, the next one gets back without the kernel (`patches/kept_memory.py`)."""

import os
import subprocess
import sys

import pytest

STEPS = """
import resource, sys
import torch
from remix_vllm_patches import kept_memory

def step():
    # More than glibc ever keeps in its heap by itself, of sizes that change.
    for rows in (70, 90, 80):
        torch.ones(rows, 1 << 18)

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

if sys.argv[1] == "apply":
    kept_memory.apply()
# The heap grows until it has room for each size, wherever small allocations came to lie.
for _ in range(8):
    step()
before = faults()
for _ in range(3):
    step()
print(faults() - before)
"""

pytestmark = pytest.mark.skipif(
    "glibc" not in (os.confstr("CS_GNU_LIBC_VERSION") or ""), reason="other C libraries differ"
)
PAGES = 3 * (70 + 90 + 80) * (1 << 20) // os.sysconf("SC_PAGE_SIZE")


def faults(mode: str, **environment: str) -> int:
    command = [sys.executable, "-c", STEPS, mode]
    environment = dict(os.environ) | environment
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return int(ended.stdout)


def test_pages_come_back():
    assert faults("stock") > PAGES * 0.9
    assert faults("apply") < PAGES * 0.1


@pytest.mark.parametrize(
    "setting",
    [
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1048576"},
        {"MALLOC_MMAP_THRESHOLD_": "1048576"},
    ],
)
def test_who_has_set_glibc_keeps_that(setting: dict[str, str]):
    assert faults("apply", **setting) > PAGES * 0.9
