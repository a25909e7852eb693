"""SDAR's config.json as vLLM reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

from remix_vllm.families.registration import register_configs, register_models
from remix_vllm.families.sdar_config import SDARConfig
from tests.models.sdar_checkpoints import sdar_config

# SDAR-4B-Chat.
PUBLISHED = sdar_config(
    head_dim=128,
    hidden_size=2560,
    intermediate_size=9728,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_window_layers=36,
    max_position_embeddings=32768,
    vocab_size=151936,
    mask_token_id=151669,
    bos_token_id=151643,
    eos_token_id=151643,
    pad_token_id=151643,
)


def read(config: dict[str, Any]) -> SDARConfig:
    return SDARConfig.from_dict(dict(config))


def without(*keys: str) -> dict[str, Any]:
    return {k: v for k, v in PUBLISHED.items() if k not in keys}


def write(path: Path, config: dict[str, Any]) -> str:
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def test_the_published_keys_are_read_as_qwen3s():
    config = read(PUBLISHED)
    assert config.hidden_size == 2560
    assert config.num_attention_heads * config.head_dim == 4096
    assert config.num_key_value_heads == 8
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 1000000}
    assert config.rms_norm_eps == 1e-6
    assert config.tie_word_embeddings is False
    assert config.sliding_window is None
    assert set(config.layer_types) == {"full_attention"}
    assert (config.mask_token_id, config.eos_token_id) == (151669, 151643)
    assert (config.block_size, config.canvas_length) == (4, 4)


def test_some_published_configs_state_neither_block_nor_mask():
    config = read(without("block_size", "mask_token_id", "head_dim"))
    assert (config.block_size, config.canvas_length) == (4, 4)
    assert config.mask_token_id is None
    assert config.head_dim == 128
    assert read(PUBLISHED | {"block_size": None}).block_size == 4


@pytest.mark.parametrize("block", [8, 16, 32, 64])
def test_other_block_lengths_are_stated(block):
    config = read(PUBLISHED | {"block_size": block})
    assert (config.block_size, config.canvas_length) == (block, block)


def test_keys_for_training_are_not_read():
    flags = {"use_deepep": True, "ep_size": 8, "micro_forward": True, "fuse_cross_entropy": True}
    assert read(PUBLISHED | flags).hidden_size == 2560


def test_a_window_that_is_not_used_is_none():
    assert read(PUBLISHED | {"sliding_window": 4096}).sliding_window is None


def test_scaled_rotation_is_left_to_vllm():
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = read(PUBLISHED | {"rope_scaling": scaling})
    assert config.rope_parameters == scaling | {"rope_theta": 1000000}


def test_a_config_is_the_same_after_writing_and_reading(tmp_path):
    config = read(PUBLISHED | {"block_size": 8})
    config.save_pretrained(tmp_path)
    again = SDARConfig.from_pretrained(tmp_path)
    assert again.to_dict() == config.to_dict()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("use_sliding_window", True),
        ("qk_norm", False),
        ("is_causal", False),
        ("dual_chunk_attention_config", {"chunk_size": 8}),
    ],
)
def test_what_is_not_implemented_is_refused_by_key_and_value(key, value):
    with pytest.raises(ValueError) as error:
        read(PUBLISHED | {key: value})
    assert f"{key}={value!r}" in str(error.value)


def test_windowed_layers_are_refused():
    layers = ["full_attention"] * 35 + ["sliding_attention"]
    with pytest.raises(ValueError, match="layer_types=.*sliding_attention.*full_attention"):
        read(PUBLISHED | {"layer_types": layers})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"num_key_value_heads": 5}, "num_key_value_heads=5"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ({"head_dim": 127}, "head_dim=127"),
        ({"block_size": 0}, "block_size=0"),
        ({"block_size": -4}, "block_size=-4"),
        ({"block_size": "4"}, "block_size='4'"),
        ({"block_size": True}, "block_size=True"),
        ({"vocab_size": -1}, "vocab_size=-1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        read(PUBLISHED | changes)


def test_every_missing_key_is_named():
    """Qwen3's class has values of its own for all of them."""
    with pytest.raises(ValueError, match="lacks hidden_size, vocab_size, rope_theta"):
        read(without("hidden_size", "vocab_size", "rope_theta"))


def test_vllm_reads_the_published_repository_without_remote_code(tmp_path):
    """Its config.json names remote classes in ``auto_map``; the files are not even there."""
    from vllm.transformers_utils.config import get_config

    register_configs()
    assert "auto_map" in PUBLISHED
    config = get_config(write(tmp_path, PUBLISHED), trust_remote_code=False)
    assert isinstance(config, SDARConfig)
    assert isinstance(get_config(str(tmp_path), trust_remote_code=True), SDARConfig)
    assert config.architectures == ["SDARForCausalLM"]


def test_vllm_takes_the_model_for_a_generating_diffusion_model(tmp_path):
    from vllm.config import ModelConfig

    register_configs()
    register_models()
    path = write(tmp_path, PUBLISHED)
    model_config = ModelConfig(path, skip_tokenizer_init=True, dtype="bfloat16")
    assert model_config.is_diffusion
    assert model_config.runner_type == "generate"
    assert model_config.convert_type == "none"
    assert model_config.get_vocab_size() == 151936
    assert model_config.get_head_size() == 128
    assert model_config.max_model_len == 32768
    assert model_config.get_sliding_window() is None
