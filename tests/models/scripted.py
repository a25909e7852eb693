"""A model that predicts what it is told to, whatever it is fed."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Script = Callable[[int, int], Sequence[float]]
"""(generation position, step) to the distribution predicted there; both count from 0."""


class ScriptedModel:
    """Follows a script at the generation positions and predicts token 0 in the prompt.

    The embedding table is the identity: ``fed[step]`` (``[visible, V]``) reads as the weight
    of each token in each generation position's input.
    """

    def __init__(self, script: Script, vocab_size: int, prompt_length: int = 0) -> None:
        self.script = script
        self.embedding = torch.eye(vocab_size)
        self.prompt_length = prompt_length
        self.fed: list[Tensor] = []

    def embed(self, token_ids: Tensor) -> Tensor:
        return self.embedding[token_ids]

    def __call__(self, inputs_embeds: Tensor) -> Tensor:
        step = len(self.fed)
        self.fed.append(inputs_embeds[self.prompt_length :].clone())
        logits = torch.zeros(inputs_embeds.shape[0], len(self.embedding))
        logits[: self.prompt_length, 0] = 1
        for i in range(inputs_embeds.shape[0] - self.prompt_length):
            logits[self.prompt_length + i] = torch.tensor(self.script(i, step)).log()
        return logits


def peaked(token: int, probability: float, vocab_size: int) -> list[float]:
    """``probability`` on ``token``, the rest spread evenly."""
    rest = (1 - probability) / (vocab_size - 1)
    return [probability if v == token else rest for v in range(vocab_size)]
