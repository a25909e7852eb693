"""Checkpoint folders that hold only what a configuration is made from."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_checkpoints(
    tmp_path_factory: pytest.TempPathFactory, shipped_model: Path
) -> Callable[[int | None], Path]:
    """A folder for an SDAR model of this block length, or for LLaDA (None)."""

    def folder(block_length: int | None) -> Path:
        if block_length is None:
            return shipped_model
        path = tmp_path_factory.mktemp(f"sdar{block_length}")
        config = {
            "architectures": ["SDARForCausalLM"],
            "model_type": "sdar",
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 1,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "intermediate_size": 16,
            "vocab_size": 24,
            "max_position_embeddings": 512,
            "block_size": block_length,
            "mask_token_id": 20,
            "rope_theta": 1e6,
            "rms_norm_eps": 1e-6,
        }
        (path / "config.json").write_text(json.dumps(config))
        return path

    return folder
