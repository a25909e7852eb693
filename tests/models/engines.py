"""Starting in-process engines for tests."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class EngineSpec:
    """What one engine is started with, as a hashable key."""

    arguments: str

    @classmethod
    def of(cls, model: Path, arguments: dict[str, Any]) -> "EngineSpec":
        return cls(json.dumps({"model": str(model)} | arguments, sort_keys=True))


def start_engine(spec: EngineSpec) -> Any:
    """An ``LLM`` in this process, float32, eager, with a small KV pool."""
    from vllm import LLM

    arguments = {
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "kv_cache_memory_bytes": 1 << 28,
        "disable_log_stats": True,
    } | json.loads(spec.arguments)
    return LLM(**arguments)


@dataclass(frozen=True)
class Answer:
    """What a request got."""

    token_ids: list[int]
    nfe: int


def ask(
    llm: Any, requests: list[tuple[list[int], int, dict[str, Any]]], ignore_eos: bool = False
) -> list[Answer]:
    """Answers to requests of (prompt ids, max_tokens, options), all given to the engine at once."""
    from vllm import SamplingParams, TokensPrompt

    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=prompt) for prompt, _, _ in requests],
        [
            SamplingParams(max_tokens=n, temperature=0, extra_args=dict(o), ignore_eos=ignore_eos)
            for _, n, o in requests
        ],
        use_tqdm=False,
    )
    completions = [output.outputs[0] for output in outputs]
    return [Answer(list(c.token_ids), sum(c.spec_decode_metrics.histogram)) for c in completions]
