"""The tensors of a LLaDA checkpoint: their names, those of vLLM's Llama, and whether all came."""

import re
from collections.abc import Iterable, Iterator

from torch import Tensor
from vllm.model_executor.models.utils import WeightsMapper

from remix_vllm.families.llada_config import LLaDAConfig

BLOCK_LAYERS = {
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
"""Layers of one block: LLaDA's name, Llama's name."""

# `ff_out` is a block's down projection and, outside the blocks, the LM head. Patterns are anchored,
# so that neither can be taken for the other. The names of layers occur without `.weight` too, in
# quantization and LoRA configs.
LLAMA_NAMES = WeightsMapper(
    orig_to_new_regex={
        re.compile(r"^model\.transformer\.wte(?=\.|$)"): "model.embed_tokens",
        re.compile(r"^model\.transformer\.ln_f(?=\.|$)"): "model.norm",
        re.compile(r"^model\.transformer\.ff_out(?=\.|$)"): "lm_head",
        **{
            re.compile(
                rf"^model\.transformer\.blocks\.(\d+)\.{ours}(?=\.|$)"
            ): rf"model.layers.\1.{llama}"
            for ours, llama in BLOCK_LAYERS.items()
        },
    }
)


def checkpoint_layers(config: LLaDAConfig) -> set[str]:
    """Names of all layers with tensors in a checkpoint of this config."""
    names = {"wte", "ln_f"} if config.weight_tying else {"wte", "ln_f", "ff_out"}
    names |= {f"blocks.{n}.{layer}" for n in range(config.n_layers) for layer in BLOCK_LAYERS}
    return {f"model.transformer.{name}" for name in names}


class CheckpointNames:
    """Watches the tensors of a checkpoint go by; tells which are missing and which do not belong.

    vLLM's loader ignores unknown biases and does not miss what never came; a model served with
    either would answer, wrongly.
    """

    def __init__(self, config: LLaDAConfig, quantized: bool) -> None:
        self._missing = checkpoint_layers(config)
        self._layers = frozenset(self._missing)
        self._quantized = quantized
        self._unexpected: list[str] = []

    def watch(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Pass on the tensors that belong to the model."""
        for name, tensor in weights:
            layer, _, kind = name.rpartition(".")
            # A quantized layer has other tensors (scales, packed weights): its method knows.
            if layer in self._layers and (kind == "weight" or self._quantized):
                self._missing.discard(layer)
                yield name, tensor
            else:
                self._unexpected.append(name)

    def check(self) -> None:
        """
        Raises:
            ValueError: tensors were missing or did not belong; the text names them.
        """
        complaints = []
        if self._missing:
            complaints.append(f"missing: {_listed(f'{layer}.weight' for layer in self._missing)}")
        if self._unexpected:
            complaints.append(f"unexpected: {_listed(self._unexpected)}")
        if complaints:
            raise ValueError(
                f"the checkpoint's tensors are not those of its config: {'; '.join(complaints)}"
            )


def _listed(names: Iterable[str], limit: int = 20) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + more
