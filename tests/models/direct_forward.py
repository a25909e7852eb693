"""One bidirectional forward of a served model on the CPU, with vLLM's layers and no engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig, get_layers_from_vllm_config, set_current_vllm_config
from vllm.distributed import (
    destroy_distributed_environment,
    destroy_model_parallel,
    init_distributed_environment,
    initialize_model_parallel,
    model_parallel_is_initialized,
)
from vllm.engine.arg_utils import EngineArgs
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.model_loader import get_model
from vllm.utils.network_utils import get_open_port
from vllm.v1.attention.backend import AttentionMetadataBuilder, CommonAttentionMetadata

BLOCK_SIZE = 32


@contextmanager
def one_rank() -> Iterator[None]:
    """vLLM's process groups for one process, unless an engine in it has made them already."""
    # Makes the calls of torch.accelerator and torch.cuda no-ops, as the CPU worker does.
    import vllm.v1.worker.cpu.shm  # noqa: F401

    if model_parallel_is_initialized():
        yield
        return
    config = VllmConfig()
    with set_current_vllm_config(config):
        address = f"tcp://127.0.0.1:{get_open_port()}"
        init_distributed_environment(1, 0, address, local_rank=0, backend="gloo")
        initialize_model_parallel()
    try:
        yield
    finally:
        destroy_model_parallel()
        destroy_distributed_environment()


class DirectModel:
    """A checkpoint loaded as vLLM loads it. Use within :func:`one_rank`."""

    def __init__(self, path: Path, dtype: str = "float32") -> None:
        arguments = EngineArgs(
            model=str(path),
            dtype=dtype,
            enforce_eager=True,
            skip_tokenizer_init=True,
            block_size=BLOCK_SIZE,
        )
        self.vllm_config = arguments.create_engine_config()
        with set_current_vllm_config(self.vllm_config):
            self.model: nn.Module = get_model(vllm_config=self.vllm_config)

    @torch.no_grad()
    def logits(self, sequences: list[Tensor]) -> list[Tensor]:
        """Logits ``[length, vocabulary]`` of each sequence, all in one batch.

        Args:
            sequences: token ids ``[length]`` or input embeddings ``[length, hidden]``.
        """
        lengths = [len(sequence) for sequence in sequences]
        positions = torch.cat([torch.arange(length) for length in lengths])
        metadata = self._attention_metadata(lengths)
        return list(self.forward(torch.cat(sequences), positions, metadata).split(lengths))

    @torch.no_grad()
    def forward(self, joined: Tensor, positions: Tensor, metadata: dict[str, Any]) -> Tensor:
        """Logits ``[tokens, vocabulary]`` of all tokens of a batch, with each layer's metadata."""
        embeds = joined if joined.dim() == 2 else None
        with (
            set_current_vllm_config(self.vllm_config),
            set_forward_context(
                metadata,
                self.vllm_config,
                num_tokens=len(joined),
                # Read by the operation that writes keys and values, which is one of its own.
                slot_mapping={name: layer.slot_mapping for name, layer in metadata.items()},
            ),
        ):
            hidden = self.model(None if embeds is not None else joined, positions, None, embeds)
            return self.model.compute_logits(hidden)

    def attention_layers(self, num_pages: int) -> dict[str, Attention]:
        """All attention layers, each with an empty KV cache of so many pages."""
        layers = get_layers_from_vllm_config(self.vllm_config, Attention)
        for layer in layers.values():
            shape = (num_pages, layer.num_kv_heads, BLOCK_SIZE, 2 * layer.head_size)
            layer.kv_cache = torch.zeros(shape, dtype=layer.kv_cache_torch_dtype)
        return layers

    def metadata_builder(self, layers: dict[str, Attention]) -> AttentionMetadataBuilder:
        """What turns common metadata into that of the layers' backend."""
        first = next(iter(layers.values()))
        return first.get_attn_backend().get_builder_cls()(
            first.get_kv_cache_spec(self.vllm_config),
            list(layers),
            self.vllm_config,
            torch.device("cpu"),
        )

    def _attention_metadata(self, lengths: list[int]) -> dict[str, Any]:
        # Pages of the longest sequence for each one; page 0 is left unused, as in the engine.
        pages = -(-max(lengths) // BLOCK_SIZE)
        table = 1 + torch.arange(len(lengths) * pages, dtype=torch.int32).view(-1, pages)
        slots = [
            (table[n, :, None] * BLOCK_SIZE + torch.arange(BLOCK_SIZE)).flatten()[:length]
            for n, length in enumerate(lengths)
        ]
        starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        common = CommonAttentionMetadata(
            query_start_loc=starts,
            query_start_loc_cpu=starts,
            seq_lens=torch.tensor(lengths, dtype=torch.int32),
            num_reqs=len(lengths),
            num_actual_tokens=sum(lengths),
            max_query_len=max(lengths),
            max_seq_len=max(lengths),
            block_table_tensor=table,
            slot_mapping=torch.cat(slots).long(),
            causal=False,
        )
        layers = self.attention_layers(int(table.max()) + 1)
        return dict.fromkeys(layers, self.metadata_builder(layers).build(0, common))
