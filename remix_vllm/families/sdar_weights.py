"""The tensors of an SDAR checkpoint. Their names are Qwen3's, those of vLLM's layers too."""

from remix_vllm.families.sdar_config import SDARConfig


def checkpoint_shapes(config: SDARConfig) -> dict[str, tuple[int, ...]]:
    """All layers with a tensor in a checkpoint of this config, and the shapes of their weights."""
    d_model, hidden, rows = config.hidden_size, config.intermediate_size, config.vocab_size
    query_size = config.num_attention_heads * config.head_dim
    key_size = config.num_key_value_heads * config.head_dim
    layer = {
        "input_layernorm": (d_model,),
        "self_attn.q_proj": (query_size, d_model),
        "self_attn.k_proj": (key_size, d_model),
        "self_attn.v_proj": (key_size, d_model),
        "self_attn.q_norm": (config.head_dim,),
        "self_attn.k_norm": (config.head_dim,),
        "self_attn.o_proj": (d_model, query_size),
        "post_attention_layernorm": (d_model,),
        "mlp.gate_proj": (hidden, d_model),
        "mlp.up_proj": (hidden, d_model),
        "mlp.down_proj": (d_model, hidden),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (rows, d_model),
        "model.norm": (d_model,),
    }
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (rows, d_model)
    for n in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    return shapes
