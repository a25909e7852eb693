"""Rotation of queries and keys in float32, whatever the model's dtype (``rope_full_precision``)."""

from torch import Tensor, nn


class FullPrecisionRotary(nn.Module):
    """Runs a rotary embedding whose cosines and sines are float32 on float32 queries and keys.

    vLLM's own keeps its table of them in the dtype of its input; bfloat16 has eight bits.
    """

    def __init__(self, rotary: nn.Module) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated ``query`` and ``key``, ``[tokens, heads * head_dim]``, in their own dtype."""
        rotated_query, rotated_key = self.rotary(positions, query.float(), key.float())
        return rotated_query.to(query.dtype), rotated_key.to(key.dtype)
