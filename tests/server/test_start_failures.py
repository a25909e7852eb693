"""A server that cannot work does not start, and the last thing it says is why."""

import json
from pathlib import Path

import pytest

from benchmarks.server import vllm_serve
from tests.models.checkpoints import tiny_tokenizer


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A model of another architecture; it is refused before its weights are looked for."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 128,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 256,
        "torch_dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    tiny_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def failure(model: Path, *arguments: str) -> str:
    with pytest.raises(RuntimeError) as error, vllm_serve(model, arguments):
        pass
    return str(error.value)


def test_a_bad_option(shipped_model: Path) -> None:
    told = failure(shipped_model, "--decoding", "remix", "--remix-config", '{"threshold": 2}')
    assert "vllm serve ended with code 2" in told
    assert "remix option threshold=2: must be a number of at least 0.0 and at most 1.0" in told


def test_an_architecture_that_is_not_served(llama: Path) -> None:
    told = failure(llama, "--decoding", "remix")
    assert "vllm serve ended with code 1" in told
    assert "architecture LlamaForCausalLM is not served by remix_vllm; served: LLaDAModelLM" in told
