"""With the plugin installed and not used, other models run exactly as in stock vLLM."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.upstream.configs import llama

SCRIPT = """
import sys
from vllm import LLM, SamplingParams
from vllm.triton_utils import dispatcher

llm = LLM(
    sys.argv[1],
    async_scheduling=True,
    dtype="float32",
    enable_prefix_caching=True,
    enforce_eager=True,
    kv_cache_memory_bytes=1 << 24,
    load_format="dummy",
    max_model_len=64,
    skip_tokenizer_init=True,
)
params = SamplingParams(
    temperature=0.7, seed=1, min_tokens=4, max_tokens=8, logprobs=2, detokenize=False
)
prompts = [{"prompt_token_ids": list(range(3, 3 + n))} for n in (1, 9, 30)]
engine = llm.llm_engine
print("RESULT", engine.vllm_config)
print("RESULT", engine.vllm_config.compute_hash())
print("RESULT", type(engine.engine_core.engine_core.scheduler))
for output in llm.generate(prompts, params, use_tqdm=False):
    print("RESULT", output.outputs[0].token_ids, output.outputs[0].logprobs)
"""


def run(model: Path, plugins: str | None) -> list[str]:
    environment = {k: v for k, v in os.environ.items() if k != "VLLM_PLUGINS"}
    if plugins is not None:
        environment["VLLM_PLUGINS"] = plugins
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(model)],
        env=environment | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if line.startswith("RESULT")]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_autoregressive_model_gets_the_same_configuration_and_answers(tmp_path: Path) -> None:
    model = llama(tmp_path)
    stock = run(model, plugins="")
    assert len(stock) == 6
    assert run(model, plugins=None) == stock
