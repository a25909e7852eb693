"""The tensors of a LLaDA checkpoint: their names, those of vLLM's Llama, and a check of them."""

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


def checkpoint_shapes(config: LLaDAConfig) -> dict[str, tuple[int, ...]]:
    """All layers with a tensor in a checkpoint of this config, and the shapes of their weights."""
    d_model, hidden, rows = config.hidden_size, config.intermediate_size, config.vocab_size
    key_size = config.num_key_value_heads * config.head_dim
    block = {
        "attn_norm": (d_model,),
        "q_proj": (d_model, d_model),
        "k_proj": (key_size, d_model),
        "v_proj": (key_size, d_model),
        "attn_out": (d_model, d_model),
        "ff_norm": (d_model,),
        "ff_proj": (hidden, d_model),
        "up_proj": (hidden, d_model),
        "ff_out": (d_model, hidden),
    }
    shapes: dict[str, tuple[int, ...]] = {"wte": (rows, d_model), "ln_f": (d_model,)}
    if not config.weight_tying:
        shapes["ff_out"] = (rows, d_model)
    for n in range(config.num_hidden_layers):
        shapes |= {f"blocks.{n}.{layer}": shape for layer, shape in block.items()}
    return {f"model.transformer.{layer}": shape for layer, shape in shapes.items()}


class CheckpointTensors:
    """Watches the tensors of a checkpoint go by; tells which are missing, unknown or misshapen.

    vLLM's loader ignores unknown biases, does not miss what never came and cuts larger projections
    to size; a model served with any of these would answer, wrongly.
    """

    def __init__(self, config: LLaDAConfig, quantized: bool) -> None:
        self._shapes = checkpoint_shapes(config)
        self._missing = set(self._shapes)
        self._quantized = quantized
        self._unexpected: list[str] = []
        self._misshapen: list[str] = []

    def watch(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        """Pass on the tensors that fit the model."""
        for name, tensor in weights:
            layer, _, kind = name.rpartition(".")
            # A quantized layer has other tensors (scales, packed weights): its method knows them.
            if layer not in self._shapes or not (kind == "weight" or self._quantized):
                self._unexpected.append(name)
                continue
            self._missing.discard(layer)
            if not self._quantized and tuple(tensor.shape) != self._shapes[layer]:
                wanted = list(self._shapes[layer])
                self._misshapen.append(f"{name} is {list(tensor.shape)}, not {wanted}")
                continue
            yield name, tensor

    def check(self) -> None:
        """
        Raises:
            ValueError: tensors were missing, unknown or misshapen; the text names them.
        """
        complaints = {
            "missing": [f"{layer}.weight" for layer in self._missing],
            "unexpected": self._unexpected,
            "wrong shape": self._misshapen,
        }
        found = "; ".join(
            f"{what}: {_listed(names)}" for what, names in complaints.items() if names
        )
        if found:
            raise ValueError(f"the checkpoint's tensors are not those of its config: {found}")


def _listed(names: Iterable[str], limit: int = 20) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + more
