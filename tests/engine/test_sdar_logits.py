"""The served SDAR computes what the plain one does, from the same files, block by block."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3Config
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform

from remix_vllm.families.sdar_model import SDARForMaskedDiffusion
from tests.models.checkpoints import write_checkpoint
from tests.models.direct_blocks import BlockForwards
from tests.models.direct_forward import DirectModel, one_rank
from tests.models.plain_sdar import PlainSDAR
from tests.models.sdar_checkpoints import MASK, sdar_config, sdar_tensors, write_sdar

# Shorter than a block, whole blocks, a part of one at the end, more than a page.
LENGTHS = (37, 1, 64, 100)


@pytest.fixture(scope="module", autouse=True)
def ranks() -> Iterator[None]:
    if not current_platform.is_cpu():
        pytest.skip("the forward without an engine is written for the CPU")
    with one_rank():
        yield


def prompts() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(0, 128, (length,), generator=generator) for length in LENGTHS]


def assert_close(logits: Tensor, expected: Tensor) -> None:
    assert logits.shape == expected.shape
    # The tied head is the embedding table, whose entries make logits of up to 60.
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-6)


@pytest.mark.parametrize(
    ("shards", "changes"),
    [
        pytest.param(1, {}, id="published layout"),
        pytest.param(3, {"block_size": 8, "num_key_value_heads": 4}, id="MHA, sharded"),
        pytest.param(1, {"block_size": 32, "tie_word_embeddings": True}, id="tied head"),
        pytest.param(1, {"block_size": None, "mask_token_id": None}, id="keys left out"),
    ],
)
@torch.no_grad()
def test_blocks_computed_at_once_have_the_plain_models_logits(
    tmp_path: Path, shards: int, changes: Any
) -> None:
    served = BlockForwards(write_sdar(tmp_path, 5, shards, **changes), len(LENGTHS))
    reference = PlainSDAR.load(tmp_path)
    starts = [0] * len(LENGTHS)
    from_ids = served.logits(starts, prompts())
    embeddings = [served.model.embed_input_ids(row) for row in prompts()]
    from_embeddings = served.logits(starts, embeddings)
    for row, logits, again in zip(prompts(), from_ids, from_embeddings, strict=True):
        expected = reference(row[None])[0]
        assert_close(logits, expected)
        assert_close(again, expected)


@pytest.mark.parametrize("block", [4, 8, 32])
@torch.no_grad()
def test_later_blocks_read_the_keys_and_values_of_earlier_forwards(
    tmp_path: Path, block: int
) -> None:
    served = BlockForwards(write_sdar(tmp_path, 5, block_size=block), 2)
    reference = PlainSDAR.load(tmp_path)
    rows = [prompts()[2], prompts()[3]]
    expected = [reference(row[None])[0] for row in rows]
    # One block beside several, several beside one, the last two of them with a part of a block.
    cuts = [(0, 32, 64), (0, 64, 100)]
    for step in range(2):
        spans = [slice(cut[step], cut[step + 1]) for cut in cuts]
        found = served.logits(
            [span.start for span in spans], [row[s] for row, s in zip(rows, spans, strict=True)]
        )
        for logits, whole, span in zip(found, expected, spans, strict=True):
            assert_close(logits, whole[span])


@pytest.mark.parametrize("block", [4, 8, 32])
@torch.no_grad()
def test_a_finished_block_is_written_in_the_forward_that_begins_the_next(
    tmp_path: Path, block: int
) -> None:
    """While a block is denoised its keys and values are those of masks and mixtures."""
    served = BlockForwards(write_sdar(tmp_path, 5, block_size=block), 2)
    reference = PlainSDAR.load(tmp_path)
    rows = [prompts()[3][: 2 * block], prompts()[3][: 3 * block]]
    starts = [len(row) - block for row in rows]
    served.logits([0, 0], [row[:start] for row, start in zip(rows, starts, strict=True)])
    masks = torch.full((block,), MASK)
    mixture = 0.5 * reference.embedding[masks] + 0.5 * reference.embedding[masks - 9]
    for canvas in (reference.embedding[masks], mixture):
        found = served.logits(starts, [canvas] * 2)
        for row, start, logits in zip(rows, starts, found, strict=True):
            seen = torch.cat([reference.embedding[row[:start]], canvas])
            assert_close(logits, reference(inputs_embeds=seen[None])[0, start:])
    found = served.logits(
        starts, [torch.cat([row[start:], masks]) for row, start in zip(rows, starts, strict=True)]
    )
    for row, start, logits in zip(rows, starts, found, strict=True):
        assert_close(logits, reference(torch.cat([row, masks])[None])[0, start:])


@torch.no_grad()
def test_a_sequence_is_not_changed_by_its_neighbours(tmp_path: Path) -> None:
    served = BlockForwards(write_sdar(tmp_path), len(LENGTHS))
    rows = prompts()
    together = served.logits([0] * len(rows), rows)
    other = [rows[0], *(row.flip(0) for row in rows[1:])]
    torch.testing.assert_close(served.logits([0] * len(rows), other)[0], together[0])


def test_no_hidden_states_give_no_logits(tmp_path: Path) -> None:
    served = DirectModel(write_sdar(tmp_path))
    logits = served.model.compute_logits(torch.empty(0, 64))
    assert logits.shape == (0, 128)


def test_a_checkpoint_with_wrong_tensors_fails_the_load(tmp_path: Path) -> None:
    """Those that vLLM's own loader would let pass: a part of a stacked parameter, and a bias."""
    config = sdar_config()
    tensors = sdar_tensors(config, seed=0)
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(128)
    with pytest.raises(ValueError, match="missing.*1.self_attn.k_proj.*unexpected.*q_proj.bias"):
        DirectModel(write_checkpoint(tmp_path, config, tensors))


def test_a_checkpoint_larger_than_its_config_fails_the_load(tmp_path: Path) -> None:
    tensors = sdar_tensors(sdar_config(intermediate_size=128), seed=0)
    with pytest.raises(ValueError, match=r"down_proj.weight is \[64, 128\], not \[64, 96\]"):
        DirectModel(write_checkpoint(tmp_path, sdar_config(), tensors))


def test_the_config_of_another_model_type_fails_the_load(tmp_path: Path) -> None:
    arguments = EngineArgs(model=str(write_sdar(tmp_path)), skip_tokenizer_init=True)
    vllm_config = arguments.create_engine_config()
    vllm_config.model_config.hf_config = Qwen3Config()
    with pytest.raises(ValueError, match="model_type='qwen3'.*'sdar'"):
        SDARForMaskedDiffusion(vllm_config=vllm_config)
