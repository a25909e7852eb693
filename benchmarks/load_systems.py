"""The systems `serve_load` compares, as servers: which checkpoint, which flags."""

import json
import os
from dataclasses import dataclass
from typing import Any

from benchmarks.load_models import Model

SERVED_NAME = "load"
MAX_NUM_SEQS = 64
# vLLM's default for a server on a CPU. `kv_cache: none` computes 21 whole sequences of `large` in
# such a step and the others after them; with all 64 in one step the matrices leave the cache.
MAX_NUM_BATCHED_TOKENS = 2048
BLOCK_LENGTH = 32
REFERENCE = "reference"


@dataclass(frozen=True)
class System:
    """One way to serve a model."""

    name: str
    causal: bool = False
    """vLLM's own Llama, without this project."""
    decoding: str = "remix"
    kv_cache: str = "none"

    def options(self, model: Model, max_nfe: int) -> dict[str, Any]:
        """Decoding options, as the server's defaults.

        Random weights decide nothing above a threshold of 1, so ``max_nfe`` makes each step decide
        an even share, and what is left mixes.
        """
        options: dict[str, Any] = {"decoding": self.decoding, "kv_cache": self.kv_cache}
        if model.scripted:
            options["block_length"] = BLOCK_LENGTH
            if self.decoding != "low_confidence":
                options |= {"threshold": 1.0, "max_nfe": max_nfe}
        return options

    def arguments(self, model: Model, max_nfe: int, dtype: str, eager: bool) -> list[str]:
        """Arguments of `vllm serve` after the model."""
        arguments = ["--served-model-name", SERVED_NAME, "--dtype", dtype]
        arguments += ["--max-model-len", "256", "--max-num-seqs", str(MAX_NUM_SEQS)]
        arguments += ["--max-num-batched-tokens", str(MAX_NUM_BATCHED_TOKENS)]
        arguments += ["--kv-cache-memory-bytes", "512M"]
        # Every run asks the same prompts.
        arguments += ["--no-enable-prefix-caching"]
        if eager:
            arguments += ["--enforce-eager"]
        if not self.causal:
            options = json.dumps(self.options(model, max_nfe))
            arguments += ["--decoding", self.decoding, "--remix-config", options]
        return arguments


SYSTEMS = {
    system.name: system
    for system in (
        System("remix"),
        System("remix_dual", kv_cache="dual"),
        System("remix_prefix", kv_cache="prefix"),
        System("threshold", decoding="threshold"),
        System("low_confidence", decoding="low_confidence"),
        System("ar", causal=True),
    )
}


def cores() -> list[int]:
    return sorted(os.sched_getaffinity(0))


# Every system keeps the memory it frees, as a served model's worker does by itself: without it the
# kernel clears the pages of every step anew (`patches/kept_memory.py`).
MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=4611686018427387904"
}


def server_environment() -> dict[str, str]:
    """Left to itself vLLM keeps one core free of the worker: half of a machine of two."""
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores()))} | MEMORY
