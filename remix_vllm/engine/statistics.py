"""How an engine computes the statistics of its logits, and what it remembers of them."""

import torch
from vllm.config import CompilationMode, ModelConfig, VllmConfig

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.history import CompactHistory, FullHistory, History
from remix_vllm.decoding.state import TOP_K, num_places
from remix_vllm.ops.row_kernels import RowKernels
from remix_vllm.ops.row_passes import RowPasses, TorchPasses


def row_passes(vllm_config: VllmConfig, block: int | None, device: torch.device) -> RowPasses:
    """Triton on a GPU; on a CPU torch, compiled wherever the model is: not with
    ``enforce_eager``."""
    if device.type != "cpu":
        from remix_vllm.ops.triton_passes import TritonPasses

        return TritonPasses()
    compiles = vllm_config.compilation_config.mode != CompilationMode.NONE
    return TorchPasses(vllm_config.model_config.get_vocab_size(), RowKernels(block, compiles))


def history_bytes_per_sequence(options: EngineOptions, model_config: ModelConfig) -> int:
    """Memory of the rejection rule for one sequence, on every worker whatever the tensor
    parallelism; any request may ask for ReMix."""
    size = model_config.get_vocab_size()
    if options.history == "compact":
        per_row = min(TOP_K, size) * (torch.int64.itemsize + torch.float32.itemsize)
    else:
        per_row = size * history_dtype(model_config).itemsize
    return options.history_rows * per_row


def history_dtype(model_config: ModelConfig) -> torch.dtype:
    """The dtype of the logits."""
    dtype: torch.dtype = model_config.head_dtype
    return dtype


def make_history(
    vllm_config: VllmConfig,
    options: EngineOptions,
    passes: RowPasses,
    device: torch.device,
) -> History:
    """Memory for all slots."""
    model_config = vllm_config.model_config
    rows = num_places(vllm_config.scheduler_config.max_num_seqs, options.history_rows)
    size = model_config.get_vocab_size()
    if options.history == "compact":
        return CompactHistory(rows, size, min(TOP_K, size), device)
    dtype = history_dtype(model_config)
    return FullHistory(rows, size, dtype, device, passes)
