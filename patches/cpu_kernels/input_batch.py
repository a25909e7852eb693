"""Kernels of `vllm/v1/worker/gpu/input_batch.py`: a step's inputs, and its bookkeeping afterwards.

`R` is the number of requests in the batch, `S` the number of request slots, `idx_mapping_ptr` [R]
the slot of each request and `query_start_loc_ptr` [>= R + 1] where each request's tokens begin in
the batch.
"""

import numpy as np
from torch import Tensor

from .arrays import local_positions


def prepare_prefill_inputs(
    input_ids_ptr: Tensor,
    next_prefill_tokens_ptr: Tensor,
    next_prefill_tokens_stride: int,
    num_lookahead: int,
    idx_mapping_ptr: Tensor,
    query_start_loc_ptr: Tensor,
    all_token_ids_ptr: Tensor,
    all_token_ids_stride: int,
    prefill_lens_ptr: Tensor,
    num_computed_tokens_ptr: Tensor,
    BLOCK_SIZE: int,
    LOOKAHEAD_BLOCK: int,
) -> None:
    """Copy the scheduled part of each prompt to ``input_ids`` and note the tokens that follow it.

    ``all_token_ids`` [S, max length], ``next_prefill_tokens`` [num_lookahead, S].
    """
    slots = idx_mapping_ptr.numpy()
    bounds = query_start_loc_ptr.numpy()[: len(slots) + 1]
    in_prompt = num_computed_tokens_ptr.numpy()[slots] < prefill_lens_ptr.numpy()[slots]
    slots, starts, lengths = slots[in_prompt], bounds[:-1][in_prompt], np.diff(bounds)[in_prompt]
    computed = num_computed_tokens_ptr.numpy()[slots]
    prefill_lens = prefill_lens_ptr.numpy()[slots]

    local = local_positions(lengths)
    first = slots * all_token_ids_stride + computed
    tokens = all_token_ids_ptr.view(-1).numpy()
    # A step may reach beyond the prompt and, in the last slot, beyond the table; what is read there
    # is overwritten later.
    input_ids_ptr.numpy()[np.repeat(starts, lengths) + local] = tokens.take(
        np.repeat(first, lengths) + local, mode="clip"
    )

    ahead = lengths + np.arange(num_lookahead)[:, None]
    next_tokens = tokens.take(first + ahead, mode="clip")
    next_prefill_tokens_ptr.numpy()[:num_lookahead, slots] = np.where(
        computed + ahead < prefill_lens, next_tokens, 0
    )


def prepare_pos_seq_lens(
    pos_ptr: Tensor,
    seq_lens_ptr: Tensor,
    idx_mapping_ptr: Tensor,
    query_start_loc_ptr: Tensor,
    num_computed_tokens_ptr: Tensor,
    max_num_reqs: int,
    BLOCK_SIZE: int,
) -> None:
    """Positions of the batch's tokens and length of each sequence; 0 for the unused rows."""
    slots = idx_mapping_ptr.numpy()
    bounds = query_start_loc_ptr.numpy()[: len(slots) + 1]
    computed = num_computed_tokens_ptr.numpy()[slots]
    lengths = np.diff(bounds)

    seq_lens = seq_lens_ptr.numpy()
    seq_lens[: len(slots)] = computed + lengths
    seq_lens[len(slots) : max_num_reqs] = 0
    pos_ptr.numpy()[: bounds[-1]] = np.repeat(computed, lengths) + local_positions(lengths)


def combine_sampled_and_draft_tokens(
    input_ids_ptr: Tensor,
    idx_mapping_ptr: Tensor,
    last_sampled_tokens_ptr: Tensor,
    query_start_loc_ptr: Tensor,
    seq_lens_ptr: Tensor,
    prefill_len_ptr: Tensor,
    draft_tokens_ptr: Tensor,
    draft_tokens_stride: int,
    cu_num_logits_ptr: Tensor,
    logits_indices_ptr: Tensor,
    BLOCK_SIZE: int,
    NUM_NEW_SAMPLED_TOKENS: int = 1,
) -> None:
    """Write each request's last sampled and draft tokens, and list the tokens that need logits.

    ``last_sampled_tokens`` [S, 1], ``draft_tokens`` [S, most drafts], ``cu_num_logits`` [R + 1]. A
    request's logits are those of its last tokens; a request without any has none.
    """
    slots = idx_mapping_ptr.numpy()
    input_ids = input_ids_ptr.numpy()
    num_logits = np.diff(cu_num_logits_ptr.numpy()[: len(slots) + 1])
    ends = query_start_loc_ptr.numpy()[1 : len(slots) + 1]
    first_logits = ends - num_logits
    local = local_positions(num_logits)
    logits_indices_ptr.numpy()[: len(local)] = np.repeat(first_logits, num_logits) + local

    seq_lens = seq_lens_ptr.numpy()[: len(slots)]
    prefill_lens = prefill_len_ptr.numpy()[slots]
    generating = seq_lens > prefill_lens
    if NUM_NEW_SAMPLED_TOKENS > 0:
        # Where the logits begin inside the prompt, that slot keeps its prompt token.
        sampled = generating & (seq_lens - num_logits >= prefill_lens)
        last_sampled = last_sampled_tokens_ptr.view(-1).numpy()
        input_ids[first_logits[sampled]] = last_sampled[slots[sampled]]

    num_drafts = np.where(generating, np.maximum(num_logits - NUM_NEW_SAMPLED_TOKENS, 0), 0)
    local = local_positions(num_drafts)
    drafts = draft_tokens_ptr.numpy()[np.repeat(slots, num_drafts), local]
    input_ids[np.repeat(ends - num_drafts, num_drafts) + local] = drafts


def expand_idx_mapping(
    idx_mapping_ptr: Tensor,
    expanded_idx_mapping_ptr: Tensor,
    expanded_local_pos_ptr: Tensor,
    cu_num_logits_ptr: Tensor,
    BLOCK_SIZE: int,
) -> None:
    """Slot of each logits row, and its number among the rows of its request: both [logits rows]."""
    slots = idx_mapping_ptr.numpy()
    num_logits = np.diff(cu_num_logits_ptr.numpy()[: len(slots) + 1])
    local = local_positions(num_logits)
    expanded_idx_mapping_ptr.numpy()[: len(local)] = np.repeat(slots, num_logits)
    expanded_local_pos_ptr.numpy()[: len(local)] = local


def get_num_sampled_and_rejected(
    num_sampled_ptr: Tensor,
    num_rejected_ptr: Tensor,
    seq_lens_ptr: Tensor,
    cu_num_logits_ptr: Tensor,
    idx_mapping_ptr: Tensor,
    prefill_len_ptr: Tensor,
) -> None:
    """Tokens rejected by each request; inside a prompt nothing is sampled or rejected. All [R]."""
    slots = idx_mapping_ptr.numpy()
    num_sampled = num_sampled_ptr.numpy()
    num_logits = np.diff(cu_num_logits_ptr.numpy()[: len(slots) + 1])
    in_prompt = seq_lens_ptr.numpy()[: len(slots)] < prefill_len_ptr.numpy()[slots]
    num_sampled[: len(slots)][in_prompt] = 0
    num_rejected_ptr.numpy()[: len(slots)] = np.where(
        in_prompt, 0, num_logits - num_sampled[: len(slots)]
    )


def post_update(
    idx_mapping_ptr: Tensor,
    num_computed_tokens_ptr: Tensor,
    last_sampled_tokens_ptr: Tensor,
    output_bin_counts_ptr: Tensor | None,
    output_bin_counts_stride: int,
    sampled_tokens_ptr: Tensor,
    sampled_tokens_stride: int,
    num_sampled_ptr: Tensor,
    num_rejected_ptr: Tensor,
    query_start_loc_ptr: Tensor | None,
    all_token_ids_ptr: Tensor,
    all_token_ids_stride: int,
    total_len_ptr: Tensor,
    num_warps: int = 1,
) -> None:
    """Append sampled tokens [R, most of one step] to their sequences and count what was computed.

    A request with slot -1 is skipped. ``output_bin_counts`` [S, vocabulary] counts the tokens if
    given.
    """
    slots = idx_mapping_ptr.numpy()
    kept = np.flatnonzero(slots >= 0)
    slots = slots[kept]
    num_sampled = num_sampled_ptr.numpy()[kept]
    delta = -num_rejected_ptr.numpy()[kept]
    if query_start_loc_ptr is not None:
        bounds = query_start_loc_ptr.numpy()
        delta = delta + bounds[kept + 1] - bounds[kept]
    num_computed_tokens_ptr.numpy()[slots] += delta

    some = num_sampled > 0
    kept, slots, num_sampled = kept[some], slots[some], num_sampled[some]
    sampled_tokens = sampled_tokens_ptr.numpy()
    last_sampled_tokens_ptr.view(-1).numpy()[slots] = sampled_tokens[kept, num_sampled - 1]

    local = local_positions(num_sampled)
    tokens = sampled_tokens[np.repeat(kept, num_sampled), local]
    token_slots = np.repeat(slots, num_sampled)
    total_len = total_len_ptr.numpy()
    all_token_ids_ptr.numpy()[token_slots, total_len[token_slots] + local] = tokens
    total_len[slots] += num_sampled
    if output_bin_counts_ptr is not None:
        np.add.at(output_bin_counts_ptr.numpy(), (token_slots, tokens), 1)


def post_update_num_computed_tokens(
    idx_mapping_ptr: Tensor, num_computed_tokens_ptr: Tensor, query_start_loc_ptr: Tensor
) -> None:
    """Count every token of the batch as computed."""
    slots = idx_mapping_ptr.numpy()
    num_computed_tokens_ptr.numpy()[slots] += np.diff(query_start_loc_ptr.numpy()[: len(slots) + 1])
