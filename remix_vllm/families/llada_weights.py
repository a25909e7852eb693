"""The tensors of a LLaDA checkpoint: their names, those of vLLM's Llama, and their shapes."""

import re

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
