"""A small random "model" whose every logit depends on every input embedding, without a
transformer."""

import torch
from torch import Tensor


class ToyModel:
    """Mixes each position's embedding with the sequence's mean and a position code.

    Args:
        mask_bias: added to the mask id's logit, so that it becomes the most likely prediction.
        sharpness: scale of the logits; large values make confident predictions.
    """

    def __init__(
        self,
        seed: int,
        vocab_size: int = 24,
        sharpness: float = 4.0,
        mask_token_id: int = 20,
        mask_bias: float = 0.0,
        hidden: int = 16,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        self.vocab_size = vocab_size
        self.mask_token_id = mask_token_id
        self.embedding = random(vocab_size, hidden)
        self.own, self.shared = random(hidden, hidden) / 4, random(hidden, hidden) / 2
        self.codes = random(512, hidden)
        self.head = random(hidden, vocab_size) * sharpness / hidden**0.5
        self.bias = torch.zeros(vocab_size)
        self.bias[mask_token_id] = mask_bias
        self.forced: dict[int, int] = {}
        """Absolute position -> the token that wins there, whatever the input."""

    def embed(self, token_ids: Tensor) -> Tensor:
        return self.embedding[token_ids]

    def __call__(self, inputs_embeds: Tensor) -> Tensor:
        seen = inputs_embeds.mean(0)
        return torch.stack([self.logits(row, seen, i) for i, row in enumerate(inputs_embeds)])

    def logits(self, row: Tensor, seen: Tensor, position: int) -> Tensor:
        """Logits of one position, by itself: a product over more rows may round differently."""
        hidden = torch.tanh(row @ self.own + seen @ self.shared + self.codes[position])
        logits = hidden @ self.head + self.bias
        if position in self.forced:
            logits[self.forced[position]] = logits.max() + 3
        return logits
