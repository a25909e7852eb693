"""C10: an empty prompt is the requester's error and nobody else's."""

from typing import Any

import pytest
from vllm import SamplingParams, TokensPrompt
from vllm.exceptions import VLLMValidationError

from tests.models.engines import Answer, ask

GREEDY = SamplingParams(max_tokens=8, temperature=0)
PROMPT = [64, 220, 277]


@pytest.mark.parametrize("prompt", ["", TokensPrompt(prompt_token_ids=[])], ids=["text", "ids"])
def test_and_the_next_request_is_served(engine: Any, oracle: Any, prompt: Any) -> None:
    """https://github.com/vllm-project/vllm/issues/7283: it killed the server."""
    llm = engine(async_scheduling=False)
    with pytest.raises(VLLMValidationError, match="prompt cannot be empty"):
        llm.generate(prompt, GREEDY, use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()
    expected = oracle.generate(PROMPT, 8)
    assert ask(llm, [(PROMPT, 8, {})]) == [Answer(expected.token_ids, expected.nfe)]


@pytest.mark.parametrize(
    "content", ["", " ", "\n\t  \n", [{"type": "text", "text": " "}]], ids=repr
)
def test_a_chat_that_says_nothing(engine: Any, oracle: Any, content: Any) -> None:
    """https://github.com/vllm-project/vllm/issues/7283, with a chat template around it."""
    llm = engine(async_scheduling=False)
    with pytest.raises(VLLMValidationError, match="empty or only whitespace"):
        llm.chat([{"role": "user", "content": content}], GREEDY, use_tqdm=False)
    assert not llm.llm_engine.has_unfinished_requests()
    expected = oracle.generate(PROMPT, 8)
    assert ask(llm, [(PROMPT, 8, {})]) == [Answer(expected.token_ids, expected.nfe)]
