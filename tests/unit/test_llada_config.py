"""LLaDA's config.json as vLLM reads it."""

import json
from pathlib import Path
from typing import Any

import pytest

from remix_vllm.families.llada_config import LLaDAConfig
from remix_vllm.families.registration import register_configs, register_models
from tests.models.checkpoints import llada_config

# LLaDA-8B-Instruct.
PUBLISHED = llada_config(
    d_model=4096,
    n_layers=32,
    n_heads=32,
    n_kv_heads=32,
    mlp_hidden_size=12288,
    embedding_size=126464,
    vocab_size=126464,
    max_sequence_length=4096,
    mask_token_id=126336,
    eos_token_id=126081,
    pad_token_id=126081,
)
LLADA_MOE = {
    "architectures": ["LLaDAMoEModelLM"],
    "model_type": "llada",
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "num_experts": 64,
    "expert_intermediate_size": 1024,
    "vocab_size": 157184,
}


def read(config: dict[str, Any]) -> LLaDAConfig:
    return LLaDAConfig.from_dict(dict(config))


def write(path: Path, config: dict[str, Any]) -> str:
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


def test_the_published_keys_give_the_names_that_llama_reads():
    config = read(PUBLISHED)
    assert config.hidden_size == 4096
    assert config.num_hidden_layers == 32
    assert config.num_attention_heads == 32
    assert config.num_key_value_heads == 32
    assert config.head_dim == 128
    assert config.intermediate_size == 12288
    assert config.max_position_embeddings == 4096
    assert config.vocab_size == 126464
    assert config.rms_norm_eps == 1e-5
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 500000.0}
    assert config.rope_full_precision is True
    assert config.hidden_act == "silu"
    assert config.tie_word_embeddings is False
    assert (config.mask_token_id, config.eos_token_id) == (126336, 126081)
    assert config.canvas_length == 256


def test_the_tables_have_the_padded_number_of_rows():
    assert read(PUBLISHED | {"vocab_size": 126349}).vocab_size == 126464
    assert read(PUBLISHED | {"embedding_size": None, "vocab_size": 126349}).vocab_size == 126349


@pytest.mark.parametrize(
    ("changes", "heads"),
    [
        ({"n_kv_heads": 8}, 8),
        ({"n_kv_heads": None}, 32),
        ({"n_kv_heads": None, "multi_query_attention": True}, 1),
    ],
)
def test_the_number_of_key_heads_follows_the_published_rule(changes, heads):
    assert read(PUBLISHED | changes).num_key_value_heads == heads


def test_without_a_size_the_mlp_is_a_multiple_of_the_model():
    assert read(PUBLISHED | {"mlp_hidden_size": None}).intermediate_size == 4 * 4096


def test_a_config_is_the_same_after_writing_and_reading(tmp_path):
    config = read(PUBLISHED | {"n_kv_heads": 8, "vocab_size": 126349})
    config.save_pretrained(tmp_path)
    again = LLaDAConfig.from_pretrained(tmp_path)
    assert again.to_dict() == config.to_dict()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_type", "sequential"),
        ("block_group_size", 2),
        ("activation_type", "swiglu"),
        ("activation_type", "gelu"),
        ("layer_norm_type", "default"),
        ("layer_norm_type", "gemma_rms"),
        ("layer_norm_with_affine", False),
        ("bias_for_layer_norm", True),
        ("attention_layer_norm", True),
        ("input_emb_norm", True),
        ("scale_logits", True),
        ("include_bias", True),
        ("include_qkv_bias", True),
        ("clip_qkv", 8.0),
        ("alibi", True),
        ("rope", False),
    ],
)
def test_what_is_not_implemented_is_refused_by_key_and_value(key, value):
    with pytest.raises(ValueError, match=f"{key}={value!r}"):
        read(PUBLISHED | {key: value})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n_heads": 31}, "n_heads=31"),
        ({"n_kv_heads": 5}, "n_kv_heads=5"),
        ({"n_layers": 0}, "n_layers=0"),
        ({"n_heads": 0}, "n_heads=0"),
        ({"embedding_size": -1}, "embedding_size=-1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(changes, named):
    with pytest.raises(ValueError, match=named):
        read(PUBLISHED | changes)


def test_every_missing_key_is_named():
    config = {k: v for k, v in PUBLISHED.items() if k not in ("d_model", "rope_theta")}
    with pytest.raises(ValueError, match="lacks d_model, rope_theta"):
        read(config)


def test_llada_moe_which_has_the_same_model_type_is_refused_by_name():
    with pytest.raises(ValueError, match="LLaDAMoEModelLM.*LLaDAModelLM.*LLaDA-MoE"):
        read(LLADA_MOE)
    with pytest.raises(ValueError, match="lacks d_model"):
        read({k: v for k, v in LLADA_MOE.items() if k != "architectures"})


def test_vllm_reads_the_published_repository_without_remote_code(tmp_path):
    """Its config.json names remote classes in ``auto_map``; the files are not even there."""
    from vllm.transformers_utils.config import get_config

    register_configs()
    register_configs()
    assert "auto_map" in PUBLISHED
    config = get_config(write(tmp_path, PUBLISHED), trust_remote_code=False)
    assert isinstance(config, LLaDAConfig)
    assert isinstance(get_config(str(tmp_path), trust_remote_code=True), LLaDAConfig)
    assert config.architectures == ["LLaDAModelLM"]


def test_vllm_takes_the_model_for_a_generating_diffusion_model(tmp_path):
    from vllm.config import ModelConfig

    register_configs()
    register_models()
    register_models()
    path = write(tmp_path, PUBLISHED)
    model_config = ModelConfig(path, skip_tokenizer_init=True, dtype="bfloat16")
    assert model_config.is_diffusion
    assert model_config.runner_type == "generate"
    assert model_config.convert_type == "none"
    assert not model_config.is_multimodal_model
    assert model_config.get_vocab_size() == 126464
    assert model_config.get_head_size() == 128
    assert model_config.max_model_len == 4096
    assert model_config.get_sliding_window() is None


def test_vllm_reports_llada_moe_rather_than_running_its_remote_code(tmp_path):
    from vllm.transformers_utils.config import get_config

    register_configs()
    with pytest.raises(ValueError, match="LLaDAMoEModelLM"):
        get_config(write(tmp_path, LLADA_MOE), trust_remote_code=True)
