"""LLaDA on vLLM's Llama layers, which bring tensor parallelism, quantization and LoRA along.

LLaDA computes what Llama does, under other names (:mod:`remix_vllm.families.llada_weights`). That
its attention sees both ways is said in the attention metadata (``causal=False``), by the model
state.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.layers.rotary_embedding import get_rope
from vllm.model_executor.models.llama import (
    LlamaAttention,
    LlamaDecoderLayer,
    LlamaForCausalLM,
    LlamaModel,
)
from vllm.model_executor.models.utils import AutoWeightsLoader

from remix_vllm.families.checkpoint_tensors import CheckpointTensors
from remix_vllm.families.llada_config import LLaDAConfig
from remix_vllm.families.llada_weights import LLAMA_NAMES, checkpoint_shapes
from remix_vllm.families.rotary import FullPrecisionRotary


class LLaDAAttention(LlamaAttention):
    """Llama's attention with the rotation in float32."""

    def _init_rotary_emb(self, config: LLaDAConfig, quant_config: Any) -> None:
        if not config.rope_full_precision:
            super()._init_rotary_emb(config, quant_config)
            return
        rotary = get_rope(
            self.head_dim,
            max_position=self.max_position_embeddings,
            rope_parameters=config.rope_parameters,
            dtype=torch.float32,
        )
        self.rotary_emb = FullPrecisionRotary(rotary)


class LLaDAForMaskedDiffusion(LlamaForCausalLM):
    """Served class of the architecture LLaDAModelLM.

    ``forward`` takes ``input_ids`` ``[tokens]`` or ``inputs_embeds`` ``[tokens, hidden]`` and
    returns hidden states; ``compute_logits`` turns rows of them into ``[rows, vocabulary]``.

    Raises:
        ValueError: the config is not ours, as with remote code or an unknown ``model_type``.
    """

    hf_to_vllm_mapper = LLAMA_NAMES | LlamaModel.hf_to_vllm_mapper

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        config = vllm_config.model_config.hf_config
        if not isinstance(config, LLaDAConfig):
            raise ValueError(
                f"model_type={config.model_type!r} with architecture LLaDAModelLM is not served: "
                f"allowed is {LLaDAConfig.model_type!r}"
            )
        layer = partial(LlamaDecoderLayer, attn_layer_type=LLaDAAttention)
        super().__init__(vllm_config=vllm_config, prefix=prefix, layer_type=layer)
        self.quant_config = vllm_config.quant_config

    @staticmethod
    def get_model_state_cls() -> type:
        from remix_vllm.engine.model_state import ReMixModelState

        return ReMixModelState

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        if hidden_states.shape[0] == 0:
            # With tensor parallelism the CPU's shared-memory all_gather dies of SIGFPE on no rows.
            return hidden_states.new_empty(0, self.config.vocab_size)
        return super().compute_logits(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Load a checkpoint with LLaDA's tensor names.

        Raises:
            ValueError: a tensor is missing, unknown or of another shape than the config says.
        """
        quantized = self.quant_config is not None
        tensors = CheckpointTensors(checkpoint_shapes(self.config), quantized)
        # Stacking q, k, v and gate, up is left to LlamaModel.
        loaded: set[str] = AutoWeightsLoader(self).load_weights(
            tensors.watch(weights), mapper=LLAMA_NAMES
        )
        tensors.check()
        return loaded
