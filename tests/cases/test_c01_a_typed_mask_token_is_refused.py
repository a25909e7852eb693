"""C01: the mask token in a prompt is an error, never a hole to fill."""

from typing import Any

import pytest
from vllm import SamplingParams, TokensPrompt
from vllm.exceptions import VLLMValidationError

from tests.models.engines import Answer, ask

GREEDY = SamplingParams(max_tokens=8, temperature=0)


def next_request_is_served(llm: Any, oracle: Any) -> None:
    assert not llm.llm_engine.has_unfinished_requests()
    prompt = [64, 220, 277]
    expected = oracle.generate(prompt, 8)
    assert ask(llm, [(prompt, 8, {})]) == [Answer(expected.token_ids, expected.nfe)]


def test_in_chat_text(engine: Any, oracle: Any) -> None:
    """https://github.com/sgl-project/sglang/issues/35998: the prompt was rewritten silently."""
    llm = engine(async_scheduling=False)
    question = "what is <|mdm_mask|> plus 2?"
    with pytest.raises(VLLMValidationError, match="reserved token"):
        llm.chat([{"role": "user", "content": question}], GREEDY, use_tqdm=False)
    next_request_is_served(llm, oracle)


@pytest.mark.parametrize("position", [0, 2, 4])
def test_in_raw_ids(engine: Any, oracle: Any, position: int) -> None:
    """https://github.com/sgl-project/sglang/issues/35998, with the position named."""
    llm = engine(async_scheduling=False)
    prompt = [70, 71, 72, 73, 74]
    prompt[position] = oracle.mask_token_id
    with pytest.raises(VLLMValidationError, match=f"prompt token {position} .*reserved token"):
        llm.generate(TokensPrompt(prompt_token_ids=prompt), GREEDY, use_tqdm=False)
    next_request_is_served(llm, oracle)


def test_requests_given_together_with_the_bad_one_leave_nothing_behind(
    engine: Any, oracle: Any
) -> None:
    """https://github.com/sgl-project/sglang/issues/35998, in the middle of a batch."""
    llm = engine(async_scheduling=False)
    prompts = [[70, 71], [70, oracle.mask_token_id], [72]]
    with pytest.raises(VLLMValidationError, match="reserved token"):
        llm.generate([TokensPrompt(prompt_token_ids=p) for p in prompts], GREEDY, use_tqdm=False)
    next_request_is_served(llm, oracle)
