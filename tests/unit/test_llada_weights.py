"""Names of LLaDA's tensors: where each goes, and what is said of those that do not fit."""

import re

import pytest
import torch

from remix_vllm.families.checkpoint_tensors import CheckpointTensors
from remix_vllm.families.llada_config import LLaDAConfig
from remix_vllm.families.llada_weights import LLAMA_NAMES, checkpoint_shapes
from tests.models.checkpoints import llada_config, llada_tensors

BLOCK = "model.transformer.blocks.1"


def check(tensors: dict[str, torch.Tensor], quantized: bool = False, **changes) -> list[str]:
    """Names of the tensors passed on, if the check finds them complete."""
    config = LLaDAConfig.from_dict(llada_config(**changes))
    watched = CheckpointTensors(checkpoint_shapes(config), quantized)
    passed = [name for name, _ in watched.watch(iter(tensors.items()))]
    watched.check()
    return passed


def tensors(**changes) -> dict[str, torch.Tensor]:
    return llada_tensors(llada_config(**changes), seed=0)


@pytest.mark.parametrize(
    ("ours", "llama"),
    [
        ("model.transformer.wte.weight", "model.embed_tokens.weight"),
        ("model.transformer.ln_f.weight", "model.norm.weight"),
        ("model.transformer.ff_out.weight", "lm_head.weight"),
        (f"{BLOCK}.ff_out.weight", "model.layers.1.mlp.down_proj.weight"),
        (f"{BLOCK}.ff_proj.weight", "model.layers.1.mlp.gate_proj.weight"),
        (f"{BLOCK}.up_proj.weight", "model.layers.1.mlp.up_proj.weight"),
        (f"{BLOCK}.attn_out.weight", "model.layers.1.self_attn.o_proj.weight"),
        (f"{BLOCK}.attn_norm.weight", "model.layers.1.input_layernorm.weight"),
        (f"{BLOCK}.ff_norm.weight", "model.layers.1.post_attention_layernorm.weight"),
        ("model.transformer.blocks.31.k_proj.weight", "model.layers.31.self_attn.k_proj.weight"),
        # As quantization and LoRA configs have them.
        ("model.transformer.ff_out", "lm_head"),
        ("model.transformer.blocks.0.ff_out", "model.layers.0.mlp.down_proj"),
        (f"{BLOCK}.v_proj.lora_A.weight", "model.layers.1.self_attn.v_proj.lora_A.weight"),
        ("model.transformer.ff_output.weight", "model.transformer.ff_output.weight"),
    ],
)
def test_each_name_has_its_place_in_llama(ours, llama):
    assert LLAMA_NAMES.map_name(ours) == llama


def test_llada_8b_has_its_published_number_of_tensors():
    config = LLaDAConfig.from_dict(llada_config(n_layers=32))
    assert len(checkpoint_shapes(config)) == 32 * 9 + 3


@pytest.mark.parametrize("changes", [{}, {"weight_tying": True}, {"n_layers": 3}])
def test_a_complete_checkpoint_is_passed_on_whole(changes):
    assert check(tensors(**changes), **changes) == list(tensors(**changes))


@pytest.mark.parametrize("missing", list(tensors(n_layers=1)))
def test_each_tensor_is_missed_by_name(missing):
    """Also one of those that are stacked into a parameter that the others fill."""
    incomplete = tensors(n_layers=1)
    del incomplete[missing]
    with pytest.raises(ValueError, match=f"missing: {re.escape(missing)}$"):
        check(incomplete, n_layers=1)


@pytest.mark.parametrize(
    "extra",
    [
        f"{BLOCK}.q_proj.bias",  # vLLM's loader ignores biases it does not know
        f"{BLOCK}.q_proj.weight_scale",
        f"{BLOCK}.q_norm.weight",
        "model.transformer.blocks.2.q_proj.weight",
        "model.transformer.emb_norm.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "lm_head.weight",
        "loose",
    ],
)
def test_an_unknown_tensor_is_named(extra):
    with pytest.raises(ValueError, match=f"unexpected: {re.escape(extra)}$"):
        check(tensors() | {extra: torch.zeros(1)})


def test_a_renamed_tensor_is_named_twice():
    renamed = tensors()
    renamed[f"{BLOCK}.down_proj.weight"] = renamed.pop(f"{BLOCK}.ff_out.weight")
    with pytest.raises(ValueError) as error:
        check(renamed)
    assert f"missing: {BLOCK}.ff_out.weight" in str(error.value)
    assert f"unexpected: {BLOCK}.down_proj.weight" in str(error.value)


def test_a_head_beside_a_tied_table_is_unexpected():
    with pytest.raises(ValueError, match=re.escape("unexpected: model.transformer.ff_out.weight")):
        check(tensors(), weight_tying=True)


@pytest.mark.parametrize("layer", ["ff_proj", "k_proj", "ff_out", "attn_norm"])
def test_a_tensor_of_another_shape_is_named_with_both(layer):
    """vLLM's loader cuts a larger projection to the config's size."""
    larger = tensors()
    name = f"{BLOCK}.{layer}.weight"
    shape = list(larger[name].shape)
    larger[name] = torch.cat([larger[name], larger[name]])
    found = f"wrong shape: {name} is {list(larger[name].shape)}, not {shape}"
    with pytest.raises(ValueError, match=re.escape(found)):
        check(larger)


def test_long_lists_are_cut():
    with pytest.raises(ValueError, match="and 7 more"):
        check(tensors(n_layers=1), n_layers=4)


def test_a_quantized_layer_may_have_tensors_of_other_kinds():
    packed = tensors()
    packed[f"{BLOCK}.q_proj.qweight"] = packed.pop(f"{BLOCK}.q_proj.weight")
    packed[f"{BLOCK}.q_proj.scales"] = torch.zeros(1)
    assert check(packed, quantized=True) == list(packed)
    with pytest.raises(ValueError, match=f"unexpected: {re.escape(BLOCK)}.q_norm.scales"):
        check(packed | {f"{BLOCK}.q_norm.scales": torch.zeros(1)}, quantized=True)
