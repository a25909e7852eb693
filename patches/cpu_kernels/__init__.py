"""Numpy versions of the Triton kernels that Model Runner V2 launches for a diffusion model.

Each has the parameters of its kernel, by name and in order, so that vLLM's dispatcher can forward a
launch to it; `BLOCK_SIZE` and the like say how a kernel splits its work and are ignored. Each works
on all requests of a batch at once, since a Python loop over 256 of them costs more than a small
model's forward. The launch grid is not forwarded, so rows beyond the batch, padding for CUDA
graphs, are left alone where a kernel learns of them only by the grid.
"""

from collections.abc import Callable
from typing import Any

from . import block_table, buffers, input_batch

_INPUT_BATCH = "vllm.v1.worker.gpu.input_batch"
_BLOCK_TABLE = "vllm.v1.worker.gpu.block_table"
_BUFFERS = "vllm.v1.worker.gpu.buffer_utils"

KERNELS: dict[str, Callable[..., Any]] = {
    f"{_INPUT_BATCH}._prepare_prefill_inputs_kernel": input_batch.prepare_prefill_inputs,
    f"{_INPUT_BATCH}._prepare_pos_seq_lens_kernel": input_batch.prepare_pos_seq_lens,
    f"{_INPUT_BATCH}._combine_sampled_and_draft_tokens_kernel": (
        input_batch.combine_sampled_and_draft_tokens
    ),
    f"{_INPUT_BATCH}._expand_idx_mapping_kernel": input_batch.expand_idx_mapping,
    f"{_INPUT_BATCH}._get_num_sampled_and_rejected_kernel": (
        input_batch.get_num_sampled_and_rejected
    ),
    f"{_INPUT_BATCH}._post_update_kernel": input_batch.post_update,
    f"{_INPUT_BATCH}._post_update_num_computed_tokens_kernel": (
        input_batch.post_update_num_computed_tokens
    ),
    f"{_BLOCK_TABLE}._gather_block_tables_kernel": block_table.gather_block_tables,
    f"{_BLOCK_TABLE}._compute_slot_mappings_kernel": block_table.compute_slot_mappings,
    f"{_BUFFERS}._apply_write_kernel": buffers.apply_write,
}
"""Fallback of each kernel, under the kernel's qualified name."""
