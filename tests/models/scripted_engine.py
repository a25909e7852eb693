"""An in-process engine whose model predicts what it is told to, whatever it is fed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tests.models.runner import model_runner
from tests.models.scripted import Script


@contextmanager
def scripted(llm: Any, script: Script) -> Iterator[list[list[int]]]:
    """Let every request's logits follow ``script``: (generation position, step of the request) to a
    distribution.

    Yields:
        A list that gets, for each forward, the generation positions whose logits it computed.
    """
    runner = model_runner(llm)
    state, model = runner.model_state, runner.model
    forwards: list[list[int]] = []

    def compute_logits(hidden_states: Tensor) -> Tensor:
        rows = state.step.rows
        positions, steps = rows.position.tolist(), state.canvas.nfe[rows.slot].tolist()
        forwards.append(positions)
        predicted = [script(*row) for row in zip(positions, steps, strict=True)]
        return torch.tensor(predicted, device=hidden_states.device).log()

    # An attribute of the instance hides the method; deleting it brings the method back.
    model.compute_logits = compute_logits
    try:
        yield forwards
    finally:
        del model.compute_logits
