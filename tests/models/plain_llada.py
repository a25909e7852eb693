"""LLaDA in plain torch, written for reading.

It is the oracle of the tests, the model that `benchmarks/train_tiny.py` trains and the literal
baseline of the benchmarks, so it shares no code with the served model: only the checkpoint's tensor
names and config keys. Attention has no mask of any kind.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


def rotary_angles(length: int, head_dim: int, theta: float) -> Tensor:
    frequencies = theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return torch.cat((angles, angles), dim=-1)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate-half RoPE of `[B, heads, L, head_dim]`, in float32 (`rope_full_precision`)."""
    wide = x.float()
    left, right = wide.chunk(2, dim=-1)
    return (wide * angles.cos() + torch.cat((-right, left), dim=-1) * angles.sin()).to(x.dtype)


class Block(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        d_model, hidden = config["d_model"], config["mlp_hidden_size"]
        self.n_heads, self.n_kv_heads = config["n_heads"], config["n_kv_heads"]
        self.head_dim = d_model // self.n_heads
        self.theta = config["rope_theta"]
        self.attn_norm = RMSNorm(d_model, config["rms_norm_eps"])
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=False)
        self.attn_out = nn.Linear(d_model, d_model, bias=False)
        self.ff_norm = RMSNorm(d_model, config["rms_norm_eps"])
        self.ff_proj = nn.Linear(d_model, hidden, bias=False)  # the gate
        self.up_proj = nn.Linear(d_model, hidden, bias=False)
        self.ff_out = nn.Linear(hidden, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attn_norm(x))
        h = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(h)) * self.up_proj(h))

    def attention(self, h: Tensor) -> Tensor:
        batch, length, d_model = h.shape
        q = self.q_proj(h).view(batch, length, self.n_heads, self.head_dim).transpose(1, 2)
        k = self.k_proj(h).view(batch, length, self.n_kv_heads, self.head_dim).transpose(1, 2)
        v = self.v_proj(h).view(batch, length, self.n_kv_heads, self.head_dim).transpose(1, 2)
        angles = rotary_angles(length, self.head_dim, self.theta).to(h.device)
        q, k = rotate(q, angles), rotate(k, angles)
        mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=self.n_kv_heads < self.n_heads)
        return self.attn_out(mixed.transpose(1, 2).reshape(batch, length, d_model))


class PlainLLaDA(nn.Module):
    def __init__(self, config: dict):
        super().__init__()
        self.config = config
        d_model, rows = config["d_model"], config["embedding_size"]
        transformer = {
            "wte": nn.Embedding(rows, d_model),
            "blocks": nn.ModuleList(Block(config) for _ in range(config["n_layers"])),
            "ln_f": RMSNorm(d_model, config["rms_norm_eps"]),
        }
        if not config["weight_tying"]:
            transformer["ff_out"] = nn.Linear(d_model, rows, bias=False)
        # Two levels of containers only to arrive at the checkpoint's names.
        self.model = nn.ModuleDict({"transformer": nn.ModuleDict(transformer)})

    @property
    def embedding(self) -> Tensor:
        return self.model.transformer.wte.weight

    @property
    def head(self) -> Tensor:
        return (
            self.embedding if self.config["weight_tying"] else self.model.transformer.ff_out.weight
        )

    def hidden(self, inputs_embeds: Tensor) -> Tensor:
        x = inputs_embeds
        for block in self.model.transformer.blocks:
            x = block(x)
        return self.model.transformer.ln_f(x)

    def forward(
        self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> Tensor:
        """Logits `[B, L, V]`; position i predicts token i (no shift)."""
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.model.transformer.wte(input_ids)
        return F.linear(self.hidden(inputs_embeds), self.head)

    def save(self, path: str | Path, dtype: torch.dtype = torch.float32) -> None:
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        tensors = {
            name: tensor.detach().to(dtype).contiguous()
            for name, tensor in self.state_dict().items()
        }
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
        (path / "config.json").write_text(json.dumps(self.config, indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "PlainLLaDA":
        path = Path(path)
        model = cls(json.loads((path / "config.json").read_text()))
        tensors = load_file(path / "model.safetensors")
        model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
        return model.eval()
