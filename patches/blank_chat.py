"""A chat whose messages say nothing is refused, as an empty prompt is.

Symptom     Messages that are empty or only whitespace are answered with whatever the model makes of
            the chat template alone. (An empty prompt without a template is refused by vLLM.)
Mechanism   `BaseRenderer.render_chat` and `render_chat_async` turn messages into prompts, for
            `LLM.chat` and for the API alike. For served models they look at the messages first:
            behind them there are only ids, the template's among them.
Upstream    `vllm/renderers/base.py`; https://github.com/vllm-project/vllm/issues/7283 is its like.
Delete when vLLM refuses such chats.
"""

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .served import is_served

if TYPE_CHECKING:
    from vllm.renderers.base import BaseRenderer


@functools.cache
def apply() -> None:
    from vllm.renderers.base import BaseRenderer

    stock, stock_async = BaseRenderer.render_chat, BaseRenderer.render_chat_async

    @functools.wraps(stock)
    def render_chat(self: "BaseRenderer", conversations: Any, *args: Any, **kwargs: Any) -> Any:
        _check(self, conversations)
        return stock(self, conversations, *args, **kwargs)

    @functools.wraps(stock_async)
    async def render_chat_async(
        self: "BaseRenderer", conversations: Any, *args: Any, **kwargs: Any
    ) -> Any:
        _check(self, conversations)
        return await stock_async(self, conversations, *args, **kwargs)

    BaseRenderer.render_chat = render_chat
    BaseRenderer.render_chat_async = render_chat_async


def _check(renderer: "BaseRenderer", conversations: Sequence[Any]) -> None:
    from vllm.exceptions import VLLMValidationError

    if is_served(renderer.model_config) and any(not any(map(_says, c)) for c in conversations):
        raise VLLMValidationError(
            "all messages are empty or only whitespace: there is nothing to answer",
            parameter="messages",
        )


def _says(message: Any) -> bool:
    """True unless ``message`` is sure to say nothing: its content is blank, or blank text parts."""
    if not isinstance(message, dict) or message.get("tool_calls"):
        return True
    content = message.get("content")
    if content is None or isinstance(content, str):
        return bool((content or "").strip())
    parts = [part.get("text") if isinstance(part, dict) else part for part in content]
    return any(not isinstance(part, str) or bool(part.strip()) for part in parts)
