"""SDAR on vLLM's Qwen3 layers, which bring tensor parallelism, quantization and LoRA along.

SDAR computes what Qwen3 does, under the same names. That each position sees its own block whole and
all blocks before it is said in the attention metadata (:mod:`remix_vllm.engine.attention`), by the
model state.
"""

from collections.abc import Iterable

from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM

from remix_vllm.families.checkpoint_tensors import CheckpointTensors
from remix_vllm.families.sdar_config import SDARConfig
from remix_vllm.families.sdar_weights import checkpoint_shapes


class SDARForMaskedDiffusion(Qwen3ForCausalLM):
    """Served class of the architecture SDARForCausalLM.

    ``forward`` takes ``input_ids`` ``[tokens]`` or ``inputs_embeds`` ``[tokens, hidden]`` and
    returns hidden states; ``compute_logits`` turns rows of them into ``[rows, vocabulary]``.

    Raises:
        ValueError: the config is not ours, as with remote code or an unknown ``model_type``.
    """

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        config = vllm_config.model_config.hf_config
        if not isinstance(config, SDARConfig):
            raise ValueError(
                f"model_type={config.model_type!r} with architecture SDARForCausalLM is not "
                f"served: allowed is {SDARConfig.model_type!r}"
            )
        super().__init__(vllm_config=vllm_config, prefix=prefix)

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
        """Load a checkpoint with SDAR's tensor names.

        Raises:
            ValueError: a tensor is missing, unknown or of another shape than the config says.
        """
        quantized = self.quant_config is not None
        tensors = CheckpointTensors(checkpoint_shapes(self.config), quantized)
        loaded: set[str] = super().load_weights(tensors.watch(weights))
        tensors.check()
        return loaded
