"""An in-process engine that computes NaN for every sequence that holds a certain token."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tests.models.runner import model_runner


@contextmanager
def poisoned(llm: Any, token_id: int) -> Iterator[None]:
    """Feed NaN for ``token_id``: hidden states, keys, values and logits follow."""
    state = model_runner(llm).model_state
    prepare = state.prepare_inputs

    def prepare_inputs(*args: Any, **kwargs: Any) -> dict[str, Any]:
        inputs = prepare(*args, **kwargs)
        if state.step is not None:
            ids = state.canvas.tokens.flatten()[state.step.tokens.flat]
            inputs["inputs_embeds"][: len(ids)][ids == token_id] = torch.nan
        return inputs

    # An attribute of the instance hides the method; deleting it brings the method back.
    state.prepare_inputs = prepare_inputs
    try:
        yield
    finally:
        del state.prepare_inputs
