"""vLLM's own benchmark runs against the server."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.server.client import Client


def test_vllm_bench_serve_completes_every_request(
    client: Client, shipped_model: Path, tmp_path: Path
) -> None:
    command = [str(Path(sys.executable).parent / "vllm"), "bench", "serve"]
    command += ["--base-url", client.url, "--endpoint", "/v1/completions"]
    command += ["--model", str(shipped_model), "--served-model-name", client.model]
    command += ["--dataset-name", "random", "--random-input-len", "16", "--random-output-len", "12"]
    command += ["--num-prompts", "8", "--ignore-eos", "--temperature", "0", "--disable-tqdm"]
    command += ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "result.json"]
    ended = subprocess.run(command, env=os.environ, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["completed"] == 8
    assert result["total_output_tokens"] == 8 * 12
    # vLLM reports a diffusion model, and no speculative decoding.
    assert result["diffusion_committed_tokens"] >= 8 * 12
    assert 0 < result["diffusion_denoising_steps"] <= result["diffusion_canvas_positions"]
    assert not [name for name in result if name.startswith("spec_decode")]
    client.assert_serving()
