"""Freed memory stays with the process on a CPU, for served models.

Symptom     Throughput falls from 16 to 64 concurrent sequences of a model with a large vocabulary;
            a tenth of a step is system time.
Mechanism   glibc gives allocations above 32 MiB their own mapping and returns it when they are
            freed, whatever its dynamic threshold learns. The logits of a step, and the activations
            of many sequences, are larger: each step the kernel clears all their pages anew. Such
            allocations are told to come from the heap, and the heap not to be trimmed, so that the
            next step gets the pages of this one. The process holds on to its peak, as with the
            allocator that vLLM recommends, tcmalloc.
Upstream    `vllm/platforms/cpu.py` preloads tcmalloc where its own build brings it
            (`vllm/libs/libtcmalloc*`), which the wheel for CPUs on PyPI does not. With tcmalloc
            preloaded `mallopt` has nothing to act on. Who has set glibc's own tunables keeps them.
Delete when every CPU build of vLLM brings tcmalloc.
"""

import ctypes
import functools
import os

# Of <malloc.h>.
M_TRIM_THRESHOLD = -1
M_MMAP_MAX = -4
TUNING = ("MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")


@functools.cache
def apply() -> None:
    """Called in workers of served models only: the setting is the whole process's."""
    from vllm.platforms import current_platform

    if current_platform.is_cpu() and not _tuned():
        keep_freed_memory()


def _tuned() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc." in tunables or any(name in os.environ for name in TUNING)


def keep_freed_memory() -> bool:
    """Whether the C library has been told, which one that is not glibc cannot be."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    # A threshold of -1 is none at all.
    return bool(mallopt(M_MMAP_MAX, 0) and mallopt(M_TRIM_THRESHOLD, -1))
