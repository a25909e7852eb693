"""The served LLaDA computes what the plain one does, from the same files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform

from remix_vllm.families.llada_model import LLaDAForMaskedDiffusion
from tests.models.checkpoints import llada_config, llada_tensors, write_checkpoint, write_llada
from tests.models.direct_forward import DirectModel, one_rank
from tests.models.plain_llada import PlainLLaDA, rotary_angles, rotate

LENGTHS = (37, 1, 64, 100)


@pytest.fixture(scope="module", autouse=True)
def ranks() -> Iterator[None]:
    if not current_platform.is_cpu():
        pytest.skip("the forward without an engine is written for the CPU")
    with one_rank():
        yield


def plain(config: dict[str, Any], tensors: dict[str, Tensor]) -> PlainLLaDA:
    model = PlainLLaDA(config)
    model.load_state_dict(tensors)
    return model.eval()


def prompts(rows: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, rows, (length,), generator=generator) for length in LENGTHS]


@pytest.mark.parametrize(
    ("shards", "changes"),
    [
        pytest.param(1, {}, id="published layout"),
        pytest.param(3, {"n_heads": 4, "n_kv_heads": 2, "d_model": 128}, id="GQA, sharded"),
        pytest.param(1, {"weight_tying": True}, id="tied head"),
        # The head and the down projections, all named ff_out, have one shape here.
        pytest.param(
            1,
            {"mlp_hidden_size": 64, "embedding_size": 64, "vocab_size": 64, "mask_token_id": 63},
            id="square",
        ),
        pytest.param(
            1, {"embedding_size": 109, "vocab_size": 106, "rope_theta": 1e4}, id="padded table"
        ),
    ],
)
@torch.no_grad()
def test_logits_equal_those_of_the_plain_model(tmp_path: Path, shards: int, changes: Any) -> None:
    config = llada_config(**changes)
    tensors = llada_tensors(config, seed=5)
    served = DirectModel(write_checkpoint(tmp_path, config, tensors, shards))
    reference = plain(config, tensors)
    ids = prompts(config["embedding_size"])
    from_ids = served.logits(ids)
    from_embeddings = served.logits([served.model.embed_input_ids(row) for row in ids])
    for row, logits, again in zip(ids, from_ids, from_embeddings, strict=True):
        expected = reference(row[None])[0]
        assert logits.shape == expected.shape
        # The tied head is the embedding table, whose entries make logits of up to 60.
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-6)
        torch.testing.assert_close(again, expected, atol=1e-4, rtol=1e-6)


@torch.no_grad()
def test_the_shipped_model_is_served_with_the_plain_models_logits(shipped_model: Path) -> None:
    ids = prompts(700)
    reference = PlainLLaDA.load(shipped_model)
    for row, logits in zip(ids, DirectModel(shipped_model).logits(ids), strict=True):
        torch.testing.assert_close(logits, reference(row[None])[0], atol=1e-4, rtol=1e-5)


def test_no_hidden_states_give_no_logits(tmp_path: Path) -> None:
    served = DirectModel(write_llada(tmp_path))
    logits = served.model.compute_logits(torch.empty(0, 64))
    assert logits.shape == (0, 128)


def test_queries_and_keys_are_rotated_in_float32_whatever_the_dtype(tmp_path: Path) -> None:
    served = DirectModel(write_llada(tmp_path, max_sequence_length=4096), dtype="bfloat16")
    rotary = served.model.model.layers[0].self_attn.rotary_emb
    generator = torch.Generator().manual_seed(0)
    # As the layer gives them: slices of the product of all three.
    qkv = torch.randn(8, 3 * 64, generator=generator).bfloat16()
    query, key, value = qkv.split(64, dim=-1)
    positions = torch.arange(4088, 4096)
    angles = rotary_angles(4096, 32, 500000.0)[positions]
    expected = [
        rotate(x.view(1, 8, 2, 32).transpose(1, 2), angles).transpose(1, 2).reshape(8, 64)
        for x in (query, key)
    ]
    untouched = value.clone()
    for rotated, wanted in zip(rotary(positions, query, key), expected, strict=True):
        assert rotated.dtype == torch.bfloat16
        torch.testing.assert_close(rotated, wanted, atol=1e-3, rtol=2**-8)
    assert torch.equal(value, untouched)


@torch.no_grad()
def test_in_bfloat16_the_logits_are_those_of_the_plain_model_up_to_rounding(tmp_path: Path) -> None:
    config = llada_config()
    tensors = llada_tensors(config, seed=5)
    served = DirectModel(write_checkpoint(tmp_path, config, tensors), dtype="bfloat16")
    reference = plain(config, tensors)
    for row, logits in zip(prompts(128), served.logits(prompts(128)), strict=True):
        expected = reference(row[None])[0]
        assert (logits.float() - expected).abs().mean() < 0.03


def test_a_checkpoint_with_wrong_tensors_fails_the_load(tmp_path: Path) -> None:
    """Those that vLLM's own loader would let pass: a part of a stacked parameter, and a bias."""
    config = llada_config()
    tensors = llada_tensors(config, seed=0)
    del tensors["model.transformer.blocks.1.k_proj.weight"]
    tensors["model.transformer.blocks.0.q_proj.bias"] = torch.zeros(64)
    with pytest.raises(ValueError, match="missing.*1.k_proj.weight.*unexpected.*0.q_proj.bias"):
        DirectModel(write_checkpoint(tmp_path, config, tensors))


def test_a_checkpoint_larger_than_its_config_fails_the_load(tmp_path: Path) -> None:
    tensors = llada_tensors(llada_config(mlp_hidden_size=128), seed=0)
    with pytest.raises(ValueError, match=r"ff_out.weight is \[64, 128\], not \[64, 96\]"):
        DirectModel(write_checkpoint(tmp_path, llada_config(), tensors))


def test_the_config_of_another_model_type_fails_the_load(tmp_path: Path) -> None:
    """MMaDA lists LLaDA's architecture under a model_type of its own."""
    path = write_llada(tmp_path)
    arguments = EngineArgs(model=str(path), skip_tokenizer_init=True, dtype="float32")
    vllm_config = arguments.create_engine_config()
    vllm_config.model_config.hf_config = LlamaConfig()
    with pytest.raises(ValueError, match="model_type='llama'.*'llada'"):
        LLaDAForMaskedDiffusion(vllm_config=vllm_config)
