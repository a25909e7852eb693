"""An in-process engine that computes NaN for every sequence that holds a certain token."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tests.models.runner import model_runner


@contextmanager
def poisoned(llm: Any, token_id: int) -> Iterator[None]:
    """Embed ``token_id`` as NaN: hidden states, keys, values and logits follow."""
    model = model_runner(llm).model
    embed = model.embed_input_ids

    def embed_input_ids(input_ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        rows = embed(input_ids, *args, **kwargs)
        return torch.where((input_ids == token_id)[..., None], torch.nan, rows)

    # An attribute of the instance hides the method; deleting it brings the method back.
    model.embed_input_ids = embed_input_ids
    try:
        yield
    finally:
        del model.embed_input_ids
