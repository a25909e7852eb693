"""The tensors of an SDAR checkpoint."""

import re

import pytest
import torch

from remix_vllm.families.checkpoint_tensors import CheckpointTensors
from remix_vllm.families.sdar_config import SDARConfig
from remix_vllm.families.sdar_weights import checkpoint_shapes
from tests.models.sdar_checkpoints import sdar_config, sdar_tensors


def check(tensors: dict[str, torch.Tensor], **changes) -> list[str]:
    """Names of the tensors passed on, if the check finds them complete."""
    config = SDARConfig.from_dict(sdar_config(**changes))
    watched = CheckpointTensors(checkpoint_shapes(config), quantized=False)
    passed = [name for name, _ in watched.watch(iter(tensors.items()))]
    watched.check()
    return passed


def tensors(**changes) -> dict[str, torch.Tensor]:
    return sdar_tensors(sdar_config(**changes), seed=0)


@pytest.mark.parametrize("changes", [{}, {"tie_word_embeddings": True}, {"num_hidden_layers": 3}])
def test_a_complete_checkpoint_is_passed_on_whole(changes):
    assert check(tensors(**changes), **changes) == list(tensors(**changes))


@pytest.mark.parametrize("missing", list(tensors(num_hidden_layers=1)))
def test_each_tensor_is_missed_by_name(missing):
    incomplete = tensors(num_hidden_layers=1)
    del incomplete[missing]
    with pytest.raises(ValueError, match=f"missing: {re.escape(missing)}$"):
        check(incomplete, num_hidden_layers=1)


def test_a_head_beside_a_tied_table_is_unexpected():
    with pytest.raises(ValueError, match=re.escape("unexpected: lm_head.weight")):
        check(tensors(), tie_word_embeddings=True)


@pytest.mark.parametrize("layer", ["self_attn.q_proj", "self_attn.k_norm", "mlp.down_proj"])
def test_a_tensor_of_another_shape_is_named_with_both(layer):
    larger = tensors()
    name = f"model.layers.1.{layer}.weight"
    shape = list(larger[name].shape)
    larger[name] = torch.cat([larger[name], larger[name]])
    found = f"wrong shape: {name} is {list(larger[name].shape)}, not {shape}"
    with pytest.raises(ValueError, match=re.escape(found)):
        check(larger)
