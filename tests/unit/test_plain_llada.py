"""The plain model has LLaDA's tensors, no mask in attention, and rows that share nothing."""

import pytest
import torch
from safetensors import safe_open

from tests.models.plain_llada import PlainLLaDA

CONFIG = {
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": 48,
    "embedding_size": 40,
    "weight_tying": False,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
}
BLOCK_TENSORS = [
    "attn_norm",
    "q_proj",
    "k_proj",
    "v_proj",
    "attn_out",
    "ff_norm",
    "ff_proj",
    "up_proj",
    "ff_out",
]


def make_model(**changes) -> PlainLLaDA:
    torch.manual_seed(0)
    return PlainLLaDA(CONFIG | changes).eval()


def make_ids(batch: int = 3, length: int = 9) -> torch.Tensor:
    return torch.randint(
        0, CONFIG["embedding_size"], (batch, length), generator=torch.Generator().manual_seed(1)
    )


@torch.no_grad()
def test_every_position_sees_every_other():
    model, ids = make_model(), make_ids(batch=1)
    before = model(ids)
    for changed in (0, ids.shape[1] - 1):
        other = ids.clone()
        other[0, changed] = (other[0, changed] + 1) % CONFIG["embedding_size"]
        moved = (model(other) - before).abs().amax(dim=-1)[0]
        assert (moved > 1e-4).all()


@torch.no_grad()
def test_a_row_does_not_depend_on_its_neighbours():
    model, ids = make_model(), make_ids()
    order = torch.tensor([2, 0, 1])
    torch.testing.assert_close(model(ids[order]), model(ids)[order])
    torch.testing.assert_close(model(ids[1:2])[0], model(ids)[1])


@torch.no_grad()
def test_order_matters():
    model, ids = make_model(), make_ids(batch=1)
    assert not torch.allclose(model(ids.flip(1)).flip(1), model(ids), atol=1e-3)


@torch.no_grad()
def test_only_relative_positions_matter():
    """All tokens are equal, so only an absolute position could tell one from another."""
    model = make_model()
    logits = model(torch.full((1, 6), 3))
    torch.testing.assert_close(logits[0, 0], logits[0, 5])


@torch.no_grad()
def test_embeddings_can_stand_in_for_ids():
    model, ids = make_model(), make_ids()
    torch.testing.assert_close(
        model(inputs_embeds=model.embedding[ids]), model(ids), rtol=0, atol=0
    )
    with pytest.raises(ValueError, match="either"):
        model()


@torch.no_grad()
def test_grouped_heads_equal_repeated_heads():
    grouped, full = make_model(n_kv_heads=2), make_model()
    tensors = grouped.state_dict()
    for name in [name for name in tensors if "k_proj" in name or "v_proj" in name]:
        tensors[name] = tensors[name].view(2, 8, 32).repeat_interleave(2, dim=0).reshape(32, 32)
    full.load_state_dict(tensors)
    torch.testing.assert_close(full(make_ids()), grouped(make_ids()))


@pytest.mark.parametrize("tied", [False, True])
def test_a_checkpoint_has_the_names_of_llada_and_survives_a_round_trip(tmp_path, tied):
    model = make_model(weight_tying=tied)
    model.save(tmp_path)
    expected = {"model.transformer.wte.weight", "model.transformer.ln_f.weight"}
    expected |= {
        f"model.transformer.blocks.{n}.{name}.weight" for n in range(2) for name in BLOCK_TENSORS
    }
    if not tied:
        expected.add("model.transformer.ff_out.weight")
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert set(file.keys()) == expected

    loaded = PlainLLaDA.load(tmp_path)
    assert loaded.config == model.config
    assert not loaded.training
    with torch.no_grad():
        torch.testing.assert_close(loaded(make_ids()), model(make_ids()), rtol=0, atol=0)


def test_a_checkpoint_in_half_precision_is_served_in_float32(tmp_path):
    make_model().save(tmp_path, dtype=torch.bfloat16)
    assert {p.dtype for p in PlainLLaDA.load(tmp_path).parameters()} == {torch.float32}
