"""The engine sections of `gpu_check`: against the oracle, eager and with graphs, and step times."""

import statistics
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import torch

import remix_vllm
from benchmarks.gpu_check import Finding
from tests.models.checkpoints import llada_config, llada_tensors, write_checkpoint
from tests.models.engines import Answer, EngineSpec, ask, start_engine
from tests.models.oracle import Oracle

SHIPPED = Path(remix_vllm.__file__).parent / "assets" / "tiny-llada"
OPTIONS: list[dict[str, Any]] = [
    {},
    {"block_length": 16, "threshold": 0.6},
    {"preset": "paper", "js_threshold": 0.05, "block_length": 32},
    {"preset": "official"},
    {"decoding": "threshold"},
    {"decoding": "low_confidence", "block_length": 16, "steps_per_block": 5},
    {"max_nfe": 9},
]
REQUESTS = 30
BLOCK = 32
NFE = (8, 24)
"""Forwards per block of two runs, whose difference in time leaves out what is not a step."""
SIZES: dict[str, dict[str, int]] = {
    "cuda": {
        "d_model": 2048,
        "n_layers": 8,
        "n_heads": 16,
        "n_kv_heads": 16,
        "mlp_hidden_size": 5632,
        "embedding_size": 126464,
        "vocab_size": 126464,
        "mask_token_id": 126336,
        "eos_token_id": 126081,
        "pad_token_id": 126081,
    },
    "cpu": {},
}
SEQUENCES = {"cuda": (8, 64), "cpu": (2, 4)}


def eager(device: str) -> list[Finding]:
    """Mixed requests in one batch, eager, float32; and where the host waits for the device."""
    requests = mixed_requests()
    llm = shipped_engine(device)
    findings = [against_oracle("requests equal to the oracle", requests, ask(llm, requests))]
    if device == "cuda":
        findings.append(waits(llm, requests))
    return findings


def waits(llm: Any, requests: list[tuple[list[int], int, dict[str, Any]]]) -> Finding:
    """Lines of this package in which the steps of an engine that has run before wait for the GPU,
    as PyTorch sees it."""
    package = str(Path(remix_vllm.__file__).parent)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            ask(llm, requests)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    lines = Counter(f"{Path(w.filename).name}:{w.lineno}" for w in caught if package in w.filename)
    shown = ", ".join(f"{line} {count} times" for line, count in lines.most_common(8))
    return Finding("lines that wait for the GPU", shown or "none", not lines)


def graphs(device: str) -> list[Finding]:
    """The same compiled and with CUDA graphs, in a few sizes, as captures take time."""
    requests = mixed_requests()
    sizes = [1, 8, 64, 256, 1024]
    compilation = {"cudagraph_capture_sizes": sizes}
    compiled = shipped_engine(device, enforce_eager=False, compilation_config=compilation)
    graph = ask(compiled, requests)
    plain = ask(shipped_engine(device), requests)
    same = sum(a == b for a, b in zip(graph, plain, strict=True))
    return [
        against_oracle("requests equal to the oracle", requests, graph),
        Finding("requests equal to eager", f"{same} of {len(requests)}", same == len(requests)),
    ]


def mixed_requests() -> list[tuple[list[int], int, dict[str, Any]]]:
    rng = Random(1)
    return [
        (
            [rng.randrange(5, 300) for _ in range(rng.choice([1, 9, 30, 70]))],
            rng.choice([1, 7, 33, 60]),
            OPTIONS[i % len(OPTIONS)],
        )
        for i in range(REQUESTS)
    ]


def shipped_engine(device: str, **settings: Any) -> Any:
    return start_engine(EngineSpec.of(SHIPPED, _memory(device) | settings))


def against_oracle(
    name: str, requests: list[tuple[list[int], int, dict[str, Any]]], answers: list[Answer]
) -> Finding:
    """How many are equal in token ids and NFE, and where the others part."""
    oracle = Oracle.load(SHIPPED)
    parted = []
    for n, ((prompt, length, options), answer) in enumerate(zip(requests, answers, strict=True)):
        expected = oracle.generate(prompt, length, options)
        if answer != Answer(expected.token_ids, expected.nfe):
            pairs = zip(answer.token_ids, expected.token_ids, strict=False)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), "the end")
            parted.append(
                f"request {n} from token {same}, NFE {answer.nfe} for {expected.nfe}, {options}"
            )
    value = "; ".join([f"{len(requests) - len(parted)} of {len(requests)}", *parted[:3]])
    return Finding(name, value, not parted)


def steps(device: str) -> list[Finding]:
    """Step times with graphs, prompts of 64 tokens, one block of 32, acceptance scripted: random
    weights are confident of nothing, so `max_nfe` spreads the block over its forwards."""
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        config = llada_config(**SIZES[device])
        tensors = {k: v.bfloat16() for k, v in llada_tensors(config, seed=0).items()}
        path = write_checkpoint(Path(folder), config, tensors)
        llm = _large_engine(path, device)
        for sequences in SEQUENCES[device]:
            seconds = {
                decoding: step_seconds(llm, decoding, sequences)
                for decoding in ("remix", "threshold")
            }
            for decoding, value in seconds.items():
                findings.append(
                    Finding(f"step of {sequences} x {BLOCK}, {decoding}", f"{value * 1e3:.2f} ms")
                )
            ratio = seconds["remix"] / seconds["threshold"]
            findings.append(Finding(f"step of {sequences} x {BLOCK}, ratio", f"{ratio:.3f}"))
    return findings


def step_seconds(llm: Any, decoding: str, sequences: int) -> float:
    """Seconds per step: of runs of many forwards and of few, alternating, the difference of the
    medians over the difference in forwards."""
    rng = Random(7)
    prompts = [[rng.randrange(1, 90) for _ in range(64)] for _ in range(sequences)]
    seconds: dict[int, list[float]] = {nfe: [] for nfe in NFE}
    for _ in range(6):
        for nfe in NFE:
            options = {"decoding": decoding, "threshold": 1.0, "max_nfe": nfe}
            began = time.perf_counter()
            result = ask(llm, [(prompt, BLOCK, options) for prompt in prompts], ignore_eos=True)
            seconds[nfe].append(time.perf_counter() - began)
            assert all(answer.nfe == nfe for answer in result)
    # The first round warms up.
    few, many = (statistics.median(seconds[nfe][1:]) for nfe in NFE)
    return (many - few) / (NFE[1] - NFE[0])


def _large_engine(path: Path, device: str) -> Any:
    settings = {
        "dtype": "bfloat16",
        "enforce_eager": device == "cpu",
        "skip_tokenizer_init": True,
        "additional_config": {"remix": {"block_length": BLOCK}},
    }
    if device == "cuda":
        sizes = [64, 256, 768, 1024, 4096, 6144, 8192]
        settings |= {
            "max_num_batched_tokens": 8192,
            "compilation_config": {"cudagraph_capture_sizes": sizes},
        }
    return start_engine(EngineSpec.of(path, _memory(device, 4 << 30) | settings))


def _memory(device: str, kv_cache: int = 1 << 28) -> dict[str, Any]:
    """Small enough for two engines side by side on one GPU."""
    if device == "cpu":
        return {}
    return {"gpu_memory_utilization": 0.4, "kv_cache_memory_bytes": kv_cache}
