"""Canvas state for a toy model, and the mixing positions in its input embeddings."""

import torch
from torch import Tensor

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.history import FullHistory
from remix_vllm.decoding.rows import StepRows
from remix_vllm.decoding.state import TOP_K, CanvasState, num_places
from remix_vllm.decoding.step import StepLimits
from remix_vllm.ops.mixed_embedding import mixed_embedding
from remix_vllm.ops.row_kernels import RowKernels
from remix_vllm.ops.row_passes import RowPasses, TorchPasses
from tests.models.toy import ToyModel


def toy_canvas(
    model: ToyModel,
    engine: EngineOptions,
    num_slots: int,
    max_model_len: int,
    num_valid_tokens: int,
    statistics_rows: int,
    passes: RowPasses | None = None,
) -> tuple[CanvasState, StepLimits]:
    """State and limits of an engine with ``num_slots`` slots."""
    device = torch.device("cpu")
    rows, size = num_places(num_slots, engine.history_rows), model.vocab_size
    passes = passes or TorchPasses(size, RowKernels(statistics_rows))
    state = CanvasState(
        num_slots=num_slots,
        history=FullHistory(rows, size, torch.float32, device, passes),
        max_model_len=max_model_len,
        history_rows=engine.history_rows,
        vocab_size=size,
        mask_token_id=model.mask_token_id,
        top_k=min(TOP_K, size),
        device=device,
    )
    forbidden = sorted({model.mask_token_id, *range(num_valid_tokens, size)})
    limits = StepLimits(torch.tensor(forbidden), engine.window, engine.stream == "block", passes)
    return state, limits


def write_blends(
    embeds: Tensor,
    state: CanvasState,
    rows: StepRows,
    request: int,
    start: int,
    table: Tensor,
    passes: RowPasses,
) -> None:
    """Overwrite the rows of ``embeds`` ``[tokens, H]`` that are in state C.

    Args:
        request: its place in the step.
        start: index of its first token among the step's tokens.
    """
    for n in ((rows.batch == request) & state.mixed[rows.place]).nonzero().flatten().tolist():
        row = rows.place[n : n + 1]
        embeds[int(rows.token_index[n]) - start] = mixed_embedding(
            state.candidate_ids[row],
            state.candidate_weights[row],
            state.options.columns.beta_mix[rows.slot[n : n + 1]],
            state.mask_token_id,
            table,
            0,
            passes,
        )[0]
