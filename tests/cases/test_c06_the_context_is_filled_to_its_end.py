"""C06: a prompt that leaves less room than a block gets an output that fills the room."""

import random
from typing import Any

import pytest
from vllm import SamplingParams, TokensPrompt
from vllm.exceptions import VLLMValidationError

CONTEXT = 64


def prompt_of(length: int) -> list[int]:
    rng = random.Random(length)
    return [rng.randrange(5, 700) for _ in range(length)]


def test_prompts_near_the_end_of_the_context_equal_the_oracle(engine: Any, oracle: Any) -> None:
    """https://github.com/sgl-project/sglang-omni/issues/446: the block's end was out of bounds."""
    llm = engine(async_scheduling=False, max_model_len=CONTEXT)
    # What fits exactly, what is too much, and what vLLM fills in when nothing is said.
    cases = [
        (length, max_tokens)
        for length in range(56, CONTEXT)
        for max_tokens in (CONTEXT - length, CONTEXT, None)
    ]
    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=prompt_of(length)) for length, _ in cases],
        [SamplingParams(max_tokens=n, temperature=0, ignore_eos=True) for _, n in cases],
        use_tqdm=False,
    )
    for (length, _), output in zip(cases, outputs, strict=True):
        expected = oracle.generate(prompt_of(length), CONTEXT - length, ignore_eos=True)
        assert list(output.outputs[0].token_ids) == expected.token_ids
        assert output.outputs[0].finish_reason == "length"


def test_a_prompt_without_room_for_a_token_is_refused(engine: Any, oracle: Any) -> None:
    """https://github.com/sgl-project/sglang-omni/issues/446, one token further."""
    llm = engine(async_scheduling=False, max_model_len=CONTEXT)
    greedy = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)
    with pytest.raises(VLLMValidationError, match=str(CONTEXT)):
        llm.generate(TokensPrompt(prompt_token_ids=prompt_of(CONTEXT)), greedy, use_tqdm=False)
    [output] = llm.generate(TokensPrompt(prompt_token_ids=[70, 71]), greedy, use_tqdm=False)
    expected = oracle.generate([70, 71], 4, ignore_eos=True)
    assert list(output.outputs[0].token_ids) == expected.token_ids
