"""LLaDA-8B (Base, Instruct, 1.5): bidirectional attention over the whole sequence."""

from remix_vllm.families.family import Family

LLADA = Family(
    name="LLaDA",
    architectures=("LLaDAModelLM",),
    model_type="llada",
    model_class="remix_vllm.families.llada_model:LLaDAForMaskedDiffusion",
    config_class="remix_vllm.families.llada_config:LLaDAConfig",
    attention="full",
    block_grid="prompt_end",
    default_block_length=128,
    logit_shift=False,
    mask_token_text="<|mdm_mask|>",
    fallback_mask_token_id=126336,
    stop_token_texts=("<|endoftext|>", "<|eot_id|>"),
)
