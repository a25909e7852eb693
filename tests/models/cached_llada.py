"""The approximations ``prefix`` and ``dual`` in plain torch: some positions keep stale keys and
values."""

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.models.oracle import PlainReference
from tests.models.plain_llada import Block, PlainLLaDA, rotary_angles, rotate


class CachedReference(PlainReference):
    """A model that computes part of the sequence, as a KV policy says, and reads the rest from a
    cache.

    ``before_forward`` is the reference loop's hook. Logits of positions not computed are zero; the
    loop reads only those of the active block.
    """

    def __init__(self, model: PlainLLaDA, policy: str, refresh_interval: int = 0) -> None:
        super().__init__(model)
        self.policy = policy
        self.refresh_interval = refresh_interval
        self.cache: list[tuple[Tensor, Tensor]] = []
        self.span = slice(0, 0)
        self.refresh = True

    def before_forward(self, block_start: int, block_end: int, step: int) -> None:
        every = self.refresh_interval
        self.refresh = step == 0 or (every > 0 and step % every == 0)
        self.span = slice(block_start, block_end if self.policy == "dual" else None)

    @torch.no_grad()
    def __call__(self, inputs_embeds: Tensor) -> Tensor:
        length = len(inputs_embeds)
        if self.refresh:
            self.span, self.cache = slice(0, length), []
        x = inputs_embeds[self.span]
        transformer = self.model.model.transformer
        for index, block in enumerate(transformer.blocks):
            if self.refresh:
                shape = (length, block.n_kv_heads, block.head_dim)
                self.cache.append((torch.zeros(shape), torch.zeros(shape)))
            x = x + self._attention(block, index, block.attn_norm(x), length)
            h = block.ff_norm(x)
            x = x + block.ff_out(F.silu(block.ff_proj(h)) * block.up_proj(h))
        logits = torch.zeros(length, len(self.embedding))
        x = transformer.ln_f(x)
        logits[self.span] = F.linear(x, self.model.head)
        return logits

    def _attention(self, block: Block, index: int, h: Tensor, length: int) -> Tensor:
        keys, values = self.cache[index]
        angles = rotary_angles(length, block.head_dim, block.theta)[self.span]
        q = block.q_proj(h).view(len(h), block.n_heads, block.head_dim).transpose(0, 1)
        k = block.k_proj(h).view(len(h), block.n_kv_heads, block.head_dim).transpose(0, 1)
        keys[self.span] = rotate(k[None], angles)[0].transpose(0, 1)
        values[self.span] = block.v_proj(h).view(len(h), block.n_kv_heads, block.head_dim)
        mixed = F.scaled_dot_product_attention(
            rotate(q[None], angles),
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            enable_gqa=block.n_kv_heads < block.n_heads,
        )
        return block.attn_out(mixed[0].transpose(0, 1).reshape(len(h), -1))
