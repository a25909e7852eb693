"""The configuration hook: what an engine of a served architecture runs with, and what it refuses.

vLLM 0.32 calls the hook that ``MODELS_CONFIG_MAP`` has for an architecture early in
``VllmConfig.__post_init__``, once per model configuration, before it settles async scheduling and
before the platform's own checks. ``diffusion_config`` stays None, since the canvas does not travel
as draft tokens; ``model_config.is_diffusion`` is true nevertheless, by the model's config class.
"""

import logging
from collections.abc import Iterator

from vllm.config import ModelConfig, VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.model_executor.models.config import MODELS_CONFIG_MAP, VerifyAndUpdateConfig
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from remix_vllm.engine.capacity import Capacity
from remix_vllm.engine.fingerprint import write_fingerprint
from remix_vllm.engine.options import engine_options
from remix_vllm.engine.scheduler_choice import SCHEDULER_FACTORY
from remix_vllm.families import SERVED_ARCHITECTURES, family_of
from remix_vllm.serving.sampling import GREEDY_VALUES, refusal

logger = logging.getLogger("vllm.remix_vllm.hooks")


class ReMixConfigHook(VerifyAndUpdateConfig):
    """Configures engines of all served architectures."""

    @staticmethod
    def verify_and_update_config(vllm_config: VllmConfig) -> None:
        """Check and complete ``vllm_config``.

        Raises:
            ValueError: a bad option, or a setting ReMix decoding cannot run with; the text names
                it, its value and what is allowed.
        """
        options = engine_options(vllm_config)
        for problem in _unsupported(vllm_config):
            raise ValueError(problem)
        Capacity(options, vllm_config.model_config).check(vllm_config.scheduler_config)

        vllm_config.scheduler_config.scheduler_cls = SCHEDULER_FACTORY
        # With full attention a sequence is scheduled as a whole.
        block_causal = options.kv_cache == "block"
        vllm_config.scheduler_config.enable_chunked_prefill = block_causal
        vllm_config.attention_config.use_non_causal = True
        # The rows of a step, one per block, are not those that a full graph would be captured with.
        # Nor could one be: the runner's query length of a decode is 0 where no token is sampled.
        if vllm_config.compilation_config.cudagraph_mode != CUDAGraphMode.NONE:
            vllm_config.compilation_config.cudagraph_mode = CUDAGraphMode.PIECEWISE
        _disable_prefix_caching(vllm_config)
        _drop_generation_defaults(vllm_config.model_config)
        write_fingerprint(vllm_config)


def install_config_hook() -> None:
    """Let vLLM call the hook for every served architecture."""
    for architecture in SERVED_ARCHITECTURES:
        MODELS_CONFIG_MAP[architecture] = ReMixConfigHook


def _unsupported(vllm_config: VllmConfig) -> Iterator[str]:
    """What is set and cannot work, each with the reason."""
    model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
    parallel, attention = vllm_config.parallel_config, vllm_config.attention_config
    if model.runner_type != "generate":
        yield f"runner={model.runner_type!r}: the model only generates; allowed is 'generate'"
    for name in (
        "pipeline_parallel_size",
        "prefill_context_parallel_size",
        "decode_context_parallel_size",
    ):
        if (size := getattr(parallel, name)) != 1:
            yield (
                f"{name}={size}: a denoising step needs embeddings, logits and canvas of a "
                f"sequence on one worker; allowed is 1 (use tensor_parallel_size)"
            )
    if vllm_config.speculative_config is not None:
        method = vllm_config.speculative_config.method
        yield (
            f"speculative_config with method {method!r}: a denoising step decides many tokens "
            f"itself, there is nothing to draft; allowed is none"
        )
    if vllm_config.diffusion_config is not None:
        yield (
            f"diffusion_config={vllm_config.diffusion_config}: the canvas is set by the remix "
            f"options window and block_length; allowed is none"
        )
    if scheduler.scheduler_cls is not None:
        yield (
            f"scheduler_cls={scheduler.scheduler_cls!r}: ReMix decoding brings its own scheduler; "
            f"allowed is none"
        )
    if scheduler.long_prefill_token_threshold:
        yield (
            f"long_prefill_token_threshold={scheduler.long_prefill_token_threshold}: a sequence is "
            f"never computed in parts; allowed is 0"
        )
    if vllm_config.lora_config is not None:
        yield "enable_lora=True: adapters are not implemented for ReMix decoding; allowed is False"
    if vllm_config.watermark_config is not None:
        yield "watermark_config: tokens are decided, not sampled; allowed is none"
    if vllm_config.kv_transfer_config is not None or vllm_config.cache_config.kv_offloading_size:
        yield (
            "kv_transfer_config or kv_offloading_size: with bidirectional attention no key or "
            "value is valid beyond its step; allowed is neither"
        )
    if model.enable_prompt_embeds:
        yield "enable_prompt_embeds=True: steps are rebuilt from token ids; allowed is False"
    if model.logits_processors:
        yield (
            f"logits_processors={model.logits_processors}: ReMix decoding does not call them; "
            f"allowed is none"
        )
    for name, value in model.override_generation_config.items():
        if name in GREEDY_VALUES and value is not None and (reason := refusal(name, value)):
            yield f"override_generation_config: {reason}"
    if attention.backend == AttentionBackendEnum.FLASHINFER:
        yield (
            "attention_backend=FLASHINFER: attention is bidirectional, which this backend lacks; "
            "allowed are FLASH_ATTN, TRITON_ATTN and the default"
        )


def _disable_prefix_caching(vllm_config: VllmConfig) -> None:
    family = family_of(vllm_config.model_config.architectures)
    if family.attention == "full" and vllm_config.cache_config.enable_prefix_caching:
        vllm_config.cache_config.enable_prefix_caching = False
        logger.info(
            "Prefix caching is off: %s attends in both directions, so keys and values of a prompt "
            "depend on what follows it",
            family.name,
        )


def _drop_generation_defaults(model_config: ModelConfig) -> None:
    """Let requests alone say how long and how they are decoded.

    A model's ``generation_config.json`` may cap ``max_new_tokens`` for every request, and may set
    sampling parameters, which greedy decoding would then have to refuse in each request that leaves
    them out. None in ``override_generation_config`` makes vLLM skip the key
    (``get_diff_sampling_param``); what the operator put there stays.
    """
    for name in ("max_new_tokens", *GREEDY_VALUES):
        model_config.override_generation_config.setdefault(name, None)
