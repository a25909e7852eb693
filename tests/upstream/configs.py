"""vLLM configurations as the command line or `LLM` makes them, without an engine."""

import json
from pathlib import Path
from typing import Any

from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "model_type": "llama",
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "vocab_size": 128,
}


def llama(folder: Path) -> Path:
    """A model of an architecture that the plugin does not serve; it has no weights."""
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return folder


def make_config(model: Path, **arguments: Any) -> VllmConfig:
    arguments = {"dtype": "float32", "skip_tokenizer_init": True, "max_model_len": 64} | arguments
    return EngineArgs(model=str(model), **arguments).create_engine_config()
