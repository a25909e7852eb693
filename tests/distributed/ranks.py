"""Engines whose model is split over two processes of this machine."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

TWO_RANKS = {"tensor_parallel_size": 2}

# vLLM's own choice wants a NUMA node for each rank.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


@contextlib.contextmanager
def ending(llm: Any) -> Iterator[Any]:
    """End an engine's workers with the ``with`` block: its scheduler is in this process, they are
    not."""
    try:
        yield llm
    finally:
        llm.llm_engine.engine_core.shutdown()
