"""A small random model whose every logit depends on every position's input."""

import torch
from torch import Tensor


class SmallModel:
    """One round of position-dependent mixing between positions and a tanh, with random weights.

    ``scale`` sets how sharp the predictions are; ``favoured`` are tokens whose logits get a bonus,
    which puts them (the mask id, say) among the predictions.
    """

    def __init__(
        self,
        seed: int,
        vocab_size: int,
        scale: float = 4.0,
        favoured: dict[int, float] | None = None,
        hidden: int = 12,
        max_length: int = 64,
    ) -> None:
        random = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(vocab_size, hidden, generator=random)
        self.positions = torch.randn(max_length, hidden, generator=random)
        self.between = torch.randn(max_length, max_length, generator=random)
        self.head = torch.randn(hidden, vocab_size, generator=random) * scale / hidden**0.5
        self.bonus = torch.zeros(vocab_size)
        for token, bonus in (favoured or {}).items():
            self.bonus[token] = bonus

    def embed(self, token_ids: Tensor) -> Tensor:
        return self.embedding[token_ids]

    def __call__(self, inputs_embeds: Tensor) -> Tensor:
        length = inputs_embeds.shape[0]
        mixed = self.between[:length, :length] @ inputs_embeds / length**0.5
        return torch.tanh(inputs_embeds + mixed + self.positions[:length]) @ self.head + self.bonus
