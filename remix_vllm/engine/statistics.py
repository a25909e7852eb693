"""How an engine computes the statistics of its logits, and what it remembers of them."""

import torch
from vllm.config import CompilationMode, ModelConfig, VllmConfig

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.history import CompactHistory, FullHistory, History
from remix_vllm.decoding.state import TOP_K
from remix_vllm.ops.row_kernels import RowKernels


def row_kernels(vllm_config: VllmConfig, block: int | None, device: torch.device) -> RowKernels:
    """Compiled on a CPU wherever the model is: not with ``enforce_eager``."""
    compiles = vllm_config.compilation_config.mode != CompilationMode.NONE
    return RowKernels(block, compiled=compiles and device.type == "cpu")


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
    kernels: RowKernels,
    device: torch.device,
) -> History:
    """Memory for all slots."""
    model_config = vllm_config.model_config
    rows = vllm_config.scheduler_config.max_num_seqs * options.history_rows
    size = model_config.get_vocab_size()
    if options.history == "compact":
        return CompactHistory(rows, size, min(TOP_K, size), device)
    dtype = history_dtype(model_config)
    return FullHistory(rows, size, dtype, device, kernels)
