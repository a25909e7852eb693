"""The plain model is Qwen3 under a block-causal mask."""

from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from tests.models.plain_sdar import PlainSDAR, block_causal_mask
from tests.models.sdar_checkpoints import sdar_config, sdar_tensors, write_sdar

LENGTH = 11


def make_model(**changes) -> PlainSDAR:
    config = sdar_config(**changes)
    model = PlainSDAR(config)
    model.load_state_dict(sdar_tensors(config, seed=2))
    return model.eval()


def make_ids() -> torch.Tensor:
    return torch.randint(0, 128, (2, LENGTH), generator=torch.Generator().manual_seed(1))


def test_a_position_sees_its_own_block_and_those_before():
    seen = ["".join("x" if see else "." for see in row) for row in block_causal_mask(7, 3)]
    assert seen == ["xxx....", "xxx....", "xxx....", "xxxxxx.", "xxxxxx.", "xxxxxx.", "xxxxxxx"]


@pytest.mark.parametrize("changes", [{}, {"block_size": 8}, {"tie_word_embeddings": True}])
@torch.no_grad()
def test_logits_are_those_of_qwen3_with_the_mask(changes):
    model = make_model(**changes)
    names = set(Qwen3Config().to_dict()) - {"layer_types", "rope_parameters", "model_type"}
    config = Qwen3Config(
        **{key: value for key, value in model.config.items() if key in names},
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        attn_implementation="eager",
    )
    theirs = Qwen3ForCausalLM(config).eval()
    theirs.load_state_dict(model.state_dict(), strict=not changes.get("tie_word_embeddings"))
    seen = block_causal_mask(LENGTH, model.block_length)
    mask = torch.zeros(LENGTH, LENGTH).masked_fill(~seen, float("-inf"))[None, None]
    expected = theirs(make_ids(), attention_mask=mask.expand(2, 1, -1, -1)).logits
    torch.testing.assert_close(model(make_ids()), expected, atol=1e-4, rtol=1e-6)


@torch.no_grad()
def test_a_later_block_changes_nothing_before_it():
    model, ids = make_model(), make_ids()
    torch.testing.assert_close(model(ids[:, :8]), model(ids)[:, :8])
    assert not torch.allclose(model(ids[:, :7]), model(ids)[:, :7], atol=1e-3)


@torch.no_grad()
def test_embeddings_can_stand_in_for_ids():
    model, ids = make_model(), make_ids()
    again = model(inputs_embeds=model.embedding[ids])
    torch.testing.assert_close(again, model(ids), rtol=0, atol=0)
    with pytest.raises(ValueError, match="either"):
        model()


@torch.no_grad()
def test_a_checkpoint_is_read_from_all_its_files(tmp_path: Path):
    loaded = PlainSDAR.load(write_sdar(tmp_path, seed=2, shards=3))
    assert not loaded.training
    torch.testing.assert_close(loaded(make_ids()), make_model()(make_ids()), rtol=0, atol=0)


@pytest.mark.parametrize("stated", [None, 4])
def test_blocks_have_four_positions_unless_the_config_says_otherwise(stated):
    assert make_model(block_size=stated).block_length == 4
    assert make_model(block_size=32).block_length == 32
