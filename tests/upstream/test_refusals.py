"""What vLLM does by itself with requests that the patches refuse, and when."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.exceptions import VLLMValidationError
from vllm.renderers.base import BaseRenderer
from vllm.v1.engine.async_llm import AsyncLLM

from remix_vllm_patches import blank_chat, early_refusal

BLANK = [{"role": "user", "content": " \n"}]
SYSTEM = {"role": "system", "content": "be brief"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:"}}

blank_chat.apply()
early_refusal.apply()


class Renderer(BaseRenderer):
    """Renders nothing, and remembers that it was asked to."""

    def __init__(self, architecture: str) -> None:
        self.model_config: Any = SimpleNamespace(architectures=[architecture])
        self.rendered: list[Any] = []

    def render_messages(self, messages: Any, params: Any) -> Any:
        self.rendered.append(messages)
        raise LookupError

    @classmethod
    def from_config(cls, config: Any, tokenizer_kwargs: Any) -> Any:
        raise NotImplementedError


def render(architecture: str, messages: list[Any], stock: bool = False) -> int:
    """How many conversations were rendered."""
    renderer = Renderer(architecture)
    function: Any = BaseRenderer.render_chat
    if stock:
        function = inspect.unwrap(function)
    with pytest.raises(LookupError):
        function(renderer, [messages], None, SimpleNamespace())
    return len(renderer.rendered)


def test_vllm_still_begins_a_streamed_response_before_it_looks_at_the_request() -> None:
    assert inspect.isasyncgenfunction(inspect.unwrap(AsyncLLM.generate))


def test_vllm_still_renders_a_blank_chat() -> None:
    assert render("LLaDAModelLM", BLANK, stock=True) == 1


@pytest.mark.parametrize("content", ["", " \n", None, [], [{"type": "text", "text": " "}], [" "]])
def test_a_served_model_refuses_one(content: Any) -> None:
    messages = [{"role": "user", "content": content}]
    with pytest.raises(VLLMValidationError, match="empty or only whitespace"):
        BaseRenderer.render_chat(Renderer("LLaDAModelLM"), [messages], None, SimpleNamespace())


@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM, *BLANK],
        [{"role": "user", "content": [{"type": "text", "text": " "}, IMAGE]}],
        [{"role": "assistant", "content": None, "tool_calls": [{"id": "a"}]}],
    ],
)
def test_but_no_chat_that_says_something(messages: list[Any]) -> None:
    assert render("LLaDAModelLM", messages) == 1


def test_other_models_meet_stock_vllm() -> None:
    assert render("LlamaForCausalLM", BLANK) == 1
