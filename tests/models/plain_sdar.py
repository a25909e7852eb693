"""SDAR in plain torch, written for reading: Qwen3's layers under a block-causal mask.

An oracle of the tests, so it shares no code with the served model: only the checkpoint's tensor
names and config keys.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from tests.models.plain_llada import RMSNorm, rotary_angles, rotate


def block_causal_mask(length: int, block_length: int) -> Tensor:
    """True at `[i, j]` if position i sees position j; blocks are counted from position 0."""
    block = torch.arange(length) // block_length
    return block[None, :] <= block[:, None]


class Attention(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        d_model, self.head_dim = config["hidden_size"], config["head_dim"]
        self.n_heads, self.n_kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.theta = config["rope_theta"]
        self.q_proj = nn.Linear(d_model, self.n_heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.n_heads * self.head_dim, d_model, bias=False)
        self.q_norm = RMSNorm(self.head_dim, config["rms_norm_eps"])
        self.k_norm = RMSNorm(self.head_dim, config["rms_norm_eps"])

    def forward(self, h: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = h.shape
        # The norms are of each head, before the rotation.
        q = self.q_norm(self.q_proj(h).view(batch, length, self.n_heads, self.head_dim))
        k = self.k_norm(self.k_proj(h).view(batch, length, self.n_kv_heads, self.head_dim))
        v = self.v_proj(h).view(batch, length, self.n_kv_heads, self.head_dim)
        angles = rotary_angles(length, self.head_dim, self.theta).to(h.device)
        q, k = rotate(q.transpose(1, 2), angles), rotate(k.transpose(1, 2), angles)
        mixed = F.scaled_dot_product_attention(
            q, k, v.transpose(1, 2), attn_mask=mask, enable_gqa=self.n_kv_heads < self.n_heads
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        d_model, hidden = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(d_model, hidden, bias=False)
        self.up_proj = nn.Linear(d_model, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, d_model, bias=False)

    def forward(self, h: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))


class Layer(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.input_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = MLP(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class PlainSDAR(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.config = config
        self.block_length = config.get("block_size") or 4
        d_model, rows = config["hidden_size"], config["vocab_size"]
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(rows, d_model),
                "layers": nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"])),
                "norm": RMSNorm(d_model, config["rms_norm_eps"]),
            }
        )
        if not config["tie_word_embeddings"]:
            self.lm_head = nn.Linear(d_model, rows, bias=False)

    @property
    def embedding(self) -> Tensor:
        return self.model.embed_tokens.weight

    @property
    def head(self) -> Tensor:
        return self.embedding if self.config["tie_word_embeddings"] else self.lm_head.weight

    def forward(
        self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> Tensor:
        """Logits `[B, L, V]`; position i predicts token i (no shift)."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        x = self.model.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        mask = block_causal_mask(x.shape[1], self.block_length).to(x.device)
        for layer in self.model.layers:
            x = layer(x, mask)
        return F.linear(self.model.norm(x), self.head)

    @classmethod
    def load(cls, path: str | Path) -> "PlainSDAR":
        path = Path(path)
        model = cls(json.loads((path / "config.json").read_text()))
        tensors: dict[str, Tensor] = {}
        for file in sorted(path.glob("*.safetensors")):
            tensors |= load_file(file)
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        return model.eval()
