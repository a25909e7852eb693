"""The family table, mask ids, ids never predicted and stop ids."""

import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from remix_vllm.families import FAMILIES, SERVED_ARCHITECTURES, family_of, is_served
from remix_vllm.families.llada import LLADA
from remix_vllm.families.mask_token import (
    ForbiddenTokens,
    forbidden_tokens,
    resolve_mask_token_id,
)
from remix_vllm.families.sdar import SDAR
from remix_vllm.families.stop_tokens import resolve_stop_token_ids
from tests.models.checkpoints import CHARACTERS, tiny_tokenizer
from tests.models.sdar_checkpoints import ENDOFTEXT, IM_END, sdar_tokenizer
from tests.models.sdar_checkpoints import MASK as SDAR_MASK

FIRST_SPECIAL = len(CHARACTERS)
MASK = FIRST_SPECIAL + 2


def config(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"vocab_size": 128} | values)


def test_importing_the_table_imports_neither_torch_nor_vllm():
    code = (
        "import sys, remix_vllm.families;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'vllm', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_architecture_belongs_to_two_families():
    assert len(set(SERVED_ARCHITECTURES)) == len(SERVED_ARCHITECTURES)
    assert all(family_of([name]).name for name in SERVED_ARCHITECTURES)
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)


def test_llada_is_served_and_llama_is_not():
    assert is_served(["LLaDAModelLM"])
    assert is_served(["Other", "LLaDAModelLM"])
    assert not is_served(["LlamaForCausalLM"])
    assert not is_served([])
    assert family_of(["Other", "LLaDAModelLM"]) is LLADA


def test_sdar_is_served_and_its_experts_are_not():
    assert family_of(["SDARForCausalLM"]) is SDAR
    assert not is_served(["SDARMoeForCausalLM"])
    assert not is_served(["Qwen3ForCausalLM"])


@pytest.mark.parametrize("architectures", [["LlamaForCausalLM"], []])
def test_an_unknown_architecture_is_refused_with_the_list_of_the_served(architectures):
    with pytest.raises(ValueError, match="LLaDAModelLM") as error:
        family_of(architectures)
    assert str(architectures) in str(error.value)


def test_the_mask_id_of_the_config_comes_first():
    assert resolve_mask_token_id(config(mask_token_id=7), tiny_tokenizer(), LLADA) == 7
    assert resolve_mask_token_id(config(mask_token_id=0), None, LLADA) == 0


def test_then_comes_the_tokenizers_mask_token():
    assert resolve_mask_token_id(config(), tiny_tokenizer(), LLADA) == MASK
    assert resolve_mask_token_id(config(mask_token_id=None), tiny_tokenizer(), LLADA) == MASK


def test_a_mask_token_that_the_tokenizer_does_not_declare_is_found_by_its_text():
    tokenizer = tiny_tokenizer(mask_token=None)
    assert tokenizer.mask_token_id is None
    tokenizer.add_tokens(["<|mdm_mask|>"], special_tokens=True)
    expected = tokenizer.get_vocab()["<|mdm_mask|>"]
    assert resolve_mask_token_id(config(), tokenizer, LLADA) == expected


def test_last_comes_the_familys_id_if_the_model_has_it():
    assert resolve_mask_token_id(config(vocab_size=126464), None, LLADA) == 126336
    small = replace(LLADA, fallback_mask_token_id=9)
    assert resolve_mask_token_id(config(), tiny_tokenizer(mask_token=None), small) == 9


def test_the_mask_id_of_sdar_whose_config_may_lack_it():
    assert resolve_mask_token_id(config(vocab_size=151936), None, SDAR) == 151669
    assert resolve_mask_token_id(config(), sdar_tokenizer(), SDAR) == SDAR_MASK
    undeclared = sdar_tokenizer(mask_token=None)
    undeclared.add_tokens(["<|MASK|>"], special_tokens=True)
    assert resolve_mask_token_id(config(), undeclared, SDAR) == SDAR_MASK


@pytest.mark.parametrize("tokenizer", [None, tiny_tokenizer(mask_token=None)])
@pytest.mark.parametrize("fallback", [None, 126336])
def test_a_model_without_any_mask_id_is_refused(tokenizer, fallback):
    """inclusionAI/dInfer#39: such a model failed inside its first step."""
    family = replace(LLADA, fallback_mask_token_id=fallback)
    with pytest.raises(ValueError, match="mask_token_id") as error:
        resolve_mask_token_id(config(), tokenizer, family)
    for part in ("LLaDA", "config.json", "tokenizer", "<|mdm_mask|>", "128"):
        assert part in str(error.value)


@pytest.mark.parametrize("declared", [-1, 128, 126336, "102"])
def test_a_mask_id_that_is_no_embedding_row_is_refused(declared):
    with pytest.raises(ValueError, match="from 0 to 127") as error:
        resolve_mask_token_id(config(mask_token_id=declared), tiny_tokenizer(), LLADA)
    assert repr(declared) in str(error.value)


def test_a_tokenizer_with_more_ids_than_the_model_has_rows_is_refused():
    with pytest.raises(ValueError, match="tokenizer's mask token"):
        resolve_mask_token_id(config(vocab_size=MASK), tiny_tokenizer(), LLADA)


def test_rows_beyond_the_tokenizer_are_never_predicted():
    tokenizer = tiny_tokenizer()
    assert forbidden_tokens(MASK, tokenizer, 128) == ForbiddenTokens(MASK, FIRST_SPECIAL + 6)
    assert forbidden_tokens(MASK, tokenizer, 64).num_valid_tokens == 64
    assert forbidden_tokens(MASK, None, 128).num_valid_tokens == 128


def test_a_gap_in_the_ids_does_not_forbid_the_last_tokens():
    tokenizer = SimpleNamespace(get_vocab=lambda: {"a": 0, "b": 1, "<|eot_id|>": 90})
    assert forbidden_tokens(1, tokenizer, 128).num_valid_tokens == 91


def test_stop_ids_are_the_declared_ones_and_the_tokenizers():
    tokenizer = tiny_tokenizer()
    eos, eot = FIRST_SPECIAL + 1, FIRST_SPECIAL + 5
    assert resolve_stop_token_ids(None, tokenizer, LLADA) == (eos, eot)
    assert resolve_stop_token_ids(3, tokenizer, LLADA) == (3, eos, eot)
    assert resolve_stop_token_ids([eot, 5], tokenizer, LLADA) == (5, eos, eot)
    assert resolve_stop_token_ids(3, None, LLADA) == (3,)
    assert resolve_stop_token_ids(None, None, LLADA) == ()


def test_sdar_stops_at_either_of_its_end_tokens():
    assert resolve_stop_token_ids(None, sdar_tokenizer(), SDAR) == (ENDOFTEXT, IM_END)
