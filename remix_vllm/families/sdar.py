"""SDAR (dense): Qwen3 layers, block-causal attention on a grid from position 0."""

from remix_vllm.families.family import Family

SDAR = Family(
    name="SDAR",
    architectures=("SDARForCausalLM",),
    model_type="sdar",
    model_class="remix_vllm.families.sdar_model:SDARForMaskedDiffusion",
    config_class="remix_vllm.families.sdar_config:SDARConfig",
    attention="block_causal",
    block_grid="zero",
    default_block_length=4,
    logit_shift=False,
    mask_token_text="<|MASK|>",
    fallback_mask_token_id=151669,
    stop_token_texts=("<|endoftext|>", "<|im_end|>"),
)
