"""Toy models with attention: what a position sees is the mean of the embeddings in a range.

The embedding a position was fed when it was last computed is its "key and value", so a stale,
missing or foreign cache entry changes the logits. `PagedToy` reads them from pages; the references
hold them in order.
"""

import torch
from torch import Tensor

from tests.models.toy import ToyModel


class BlockCausalToy(ToyModel):
    """A position sees everything up to the end of its block, counted from position 0."""

    block_length = 4

    def __call__(self, inputs_embeds: Tensor) -> Tensor:
        length = len(inputs_embeds)
        logits = []
        for i, row in enumerate(inputs_embeds):
            extent = min((i // self.block_length + 1) * self.block_length, length)
            logits.append(self.logits(row, inputs_embeds[:extent].mean(0), i))
        return torch.stack(logits)


class CachedToy(ToyModel):
    """The approximations ``prefix`` and ``dual``: positions outside the span keep their cached
    embedding."""

    policy = "prefix"
    refresh_interval = 0

    def before_forward(self, block_start: int, block_end: int, step: int) -> None:
        every = self.refresh_interval
        self.refresh = step == 0 or (every > 0 and step % every == 0)
        self.span = slice(block_start, block_end if self.policy == "dual" else None)

    def __call__(self, inputs_embeds: Tensor) -> Tensor:
        if self.refresh:
            self.cache = inputs_embeds.clone()
        else:
            self.cache[self.span] = inputs_embeds[self.span]
        seen = self.cache.mean(0)
        return torch.stack([self.logits(row, seen, i) for i, row in enumerate(inputs_embeds)])


class PagedToy:
    """The cache of a worker: one embedding per page and offset."""

    def __init__(self, num_pages: int, page_size: int, hidden: int) -> None:
        self.page_size = page_size
        self.pages = torch.full((num_pages, page_size, hidden), 1e6)

    def forward(
        self, model: ToyModel, pages: list[int], first: int, embeds: Tensor, extents: list[int]
    ) -> Tensor:
        """Write the span's embeddings, then read each position's range: logits ``[span, V]``."""
        table = torch.tensor(pages)
        at = torch.arange(first, first + len(embeds))
        self.pages[table[at // self.page_size], at % self.page_size] = embeds
        kept = self.pages[table].flatten(0, 1)
        rows = [
            model.logits(row, kept[:extent].mean(0), first + i)
            for i, (row, extent) in enumerate(zip(embeds, extents, strict=True))
        ]
        return torch.stack(rows)
