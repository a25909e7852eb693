"""Each CPU kernel against the Triton kernel it replaces, on random batches.

The Triton kernels are vLLM's, run by Triton's interpreter. A batch has prompts in several chunks,
requests that generate, slots in any order and, where a kernel allows for it, masked rows (slot -1).
Outputs start with a value that no kernel writes, so what must be left alone is compared too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from remix_vllm_patches.cpu_kernels import KERNELS

pytest.importorskip("triton")
UNTOUCHED = -7
PREFIX = "vllm.v1.worker.gpu."
VOCABULARY = 11


@dataclass
class Launch:
    """One launch of a kernel, and the tensors it may write to."""

    grid: tuple[int, ...]
    arguments: dict[str, Any]
    results: list[Tensor]


@dataclass
class Batch:
    """A random batch: R requests of S slots."""

    rng: np.random.Generator

    def __post_init__(self) -> None:
        rng = self.rng
        self.num_slots = int(rng.integers(1, 7))
        self.num_reqs = int(rng.integers(1, self.num_slots + 1))
        self.width = 24
        self.slots = rng.permutation(self.num_slots)[: self.num_reqs]
        self.prefill_lens = rng.integers(1, 9, self.num_slots)
        self.computed = rng.integers(0, 9, self.num_slots)
        self.lengths = rng.integers(1, 6, self.num_reqs)
        self.bounds = np.concatenate([[0], np.cumsum(self.lengths)])
        self.num_logits = rng.integers(0, self.lengths + 1)
        self.cu_logits = np.concatenate([[0], np.cumsum(self.num_logits)])
        self.tokens = rng.integers(0, VOCABULARY, (self.num_slots, self.width))

    @property
    def num_tokens(self) -> int:
        return int(self.bounds[-1])

    @property
    def seq_lens(self) -> Tensor:
        return i32(self.computed[self.slots] + self.lengths)

    def masked_slots(self) -> Tensor:
        return i64(np.where(self.rng.random(self.num_reqs) < 0.3, -1, self.slots))


def i32(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.int32)


def i64(values: Any) -> Tensor:
    return torch.tensor(np.asarray(values), dtype=torch.int64)


def untouched(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.full(shape, UNTOUCHED, dtype=dtype)


def addresses(tables: list[Tensor]) -> Tensor:
    return torch.tensor([table.data_ptr() for table in tables], dtype=torch.uint64)


def prepare_prefill_inputs(batch: Batch) -> Launch:
    num_lookahead = int(batch.rng.integers(1, 4))
    input_ids, following = (
        untouched(batch.num_tokens + 2),
        untouched(num_lookahead, batch.num_slots),
    )
    return Launch(
        (batch.num_reqs,),
        {
            "input_ids_ptr": input_ids,
            "next_prefill_tokens_ptr": following,
            "next_prefill_tokens_stride": following.stride(0),
            "num_lookahead": num_lookahead,
            "idx_mapping_ptr": i64(batch.slots),
            "query_start_loc_ptr": i32(batch.bounds),
            "all_token_ids_ptr": i32(batch.tokens),
            "all_token_ids_stride": batch.width,
            "prefill_lens_ptr": i32(batch.prefill_lens),
            "num_computed_tokens_ptr": i32(batch.computed),
            "BLOCK_SIZE": 4,
            "LOOKAHEAD_BLOCK": 4,
        },
        [input_ids, following],
    )


def prepare_pos_seq_lens(batch: Batch) -> Launch:
    positions = untouched(batch.num_tokens + 2, dtype=torch.int64)
    seq_lens = untouched(batch.num_slots)
    return Launch(
        (batch.num_reqs + 1,),
        {
            "pos_ptr": positions,
            "seq_lens_ptr": seq_lens,
            "idx_mapping_ptr": i64(batch.slots),
            "query_start_loc_ptr": i32(batch.bounds),
            "num_computed_tokens_ptr": i32(batch.computed),
            "max_num_reqs": batch.num_slots,
            "BLOCK_SIZE": 4,
        },
        [positions, seq_lens],
    )


def combine_sampled_and_draft_tokens(batch: Batch) -> Launch:
    num_new = int(batch.rng.integers(0, 2))
    # A runner that samples a token in every step has a logits row for it in every request.
    cu_logits = np.concatenate([[0], np.cumsum(np.maximum(batch.num_logits, num_new))])
    input_ids = untouched(batch.num_tokens)
    indices = untouched(int(cu_logits[-1]) + 1, dtype=torch.int64)
    drafts = i64(batch.rng.integers(0, VOCABULARY, (batch.num_slots, 5)))
    return Launch(
        (batch.num_reqs,),
        {
            "input_ids_ptr": input_ids,
            "idx_mapping_ptr": i64(batch.slots),
            "last_sampled_tokens_ptr": i64(batch.rng.integers(0, 99, (batch.num_slots, 1))),
            "query_start_loc_ptr": i32(batch.bounds),
            "seq_lens_ptr": batch.seq_lens,
            "prefill_len_ptr": i32(batch.prefill_lens),
            "draft_tokens_ptr": drafts,
            "draft_tokens_stride": drafts.stride(0),
            "cu_num_logits_ptr": i32(cu_logits),
            "logits_indices_ptr": indices,
            "BLOCK_SIZE": 8,
            "NUM_NEW_SAMPLED_TOKENS": num_new,
        },
        [input_ids, indices],
    )


def expand_idx_mapping(batch: Batch) -> Launch:
    rows = int(batch.cu_logits[-1]) + 1
    slots, local = untouched(rows, dtype=torch.int64), untouched(rows)
    return Launch(
        (batch.num_reqs,),
        {
            "idx_mapping_ptr": i64(batch.slots),
            "expanded_idx_mapping_ptr": slots,
            "expanded_local_pos_ptr": local,
            "cu_num_logits_ptr": i32(batch.cu_logits),
            "BLOCK_SIZE": 8,
        },
        [slots, local],
    )


def get_num_sampled_and_rejected(batch: Batch) -> Launch:
    num_sampled, num_rejected = (
        i32(batch.rng.integers(0, 3, batch.num_reqs)),
        untouched(batch.num_reqs),
    )
    return Launch(
        (batch.num_reqs,),
        {
            "num_sampled_ptr": num_sampled,
            "num_rejected_ptr": num_rejected,
            "seq_lens_ptr": batch.seq_lens,
            "cu_num_logits_ptr": i32(batch.cu_logits),
            "idx_mapping_ptr": i64(batch.slots),
            "prefill_len_ptr": i32(batch.prefill_lens),
        },
        [num_sampled, num_rejected],
    )


def post_update(batch: Batch) -> Launch:
    rng = batch.rng
    computed, tokens = i32(batch.computed), i32(batch.tokens)
    last = untouched(batch.num_slots, 1, dtype=torch.int64)
    total_len = i32(rng.integers(1, 12, batch.num_slots))
    counts = i32(rng.integers(0, 3, (batch.num_slots, VOCABULARY))) if rng.random() < 0.5 else None
    return Launch(
        (batch.num_reqs,),
        {
            "idx_mapping_ptr": batch.masked_slots(),
            "num_computed_tokens_ptr": computed,
            "last_sampled_tokens_ptr": last,
            "output_bin_counts_ptr": counts,
            "output_bin_counts_stride": 0 if counts is None else counts.stride(0),
            "sampled_tokens_ptr": i64(rng.integers(0, VOCABULARY, (batch.num_reqs, 5))),
            "sampled_tokens_stride": 5,
            "num_sampled_ptr": i32(rng.integers(0, 6, batch.num_reqs)),
            "num_rejected_ptr": i32(rng.integers(0, 6, batch.num_reqs)),
            "query_start_loc_ptr": i32(batch.bounds) if rng.random() < 0.7 else None,
            "all_token_ids_ptr": tokens,
            "all_token_ids_stride": batch.width,
            "total_len_ptr": total_len,
        },
        [computed, last, tokens, total_len] + ([] if counts is None else [counts]),
    )


def post_update_num_computed_tokens(batch: Batch) -> Launch:
    computed = i32(batch.computed)
    return Launch(
        (batch.num_reqs,),
        {
            "idx_mapping_ptr": i64(batch.slots),
            "num_computed_tokens_ptr": computed,
            "query_start_loc_ptr": i32(batch.bounds),
        },
        [computed],
    )


def tables_of(batch: Batch) -> list[Tensor]:
    widths = batch.rng.integers(7, 12, int(batch.rng.integers(1, 4)))
    return [i32(batch.rng.integers(0, 99, (batch.num_slots, width))) for width in widths]


def gather_block_tables(batch: Batch) -> Launch:
    sources = tables_of(batch)
    targets = [torch.full_like(table, UNTOUCHED) for table in sources]
    num_blocks = i32([batch.rng.integers(0, t.shape[1] + 1, batch.num_slots) for t in sources])
    return Launch(
        (len(sources), batch.num_reqs),
        {
            "batch_idx_to_req_idx": i64(batch.slots),
            "src_block_table_ptrs": addresses(sources),
            "dst_block_table_ptrs": addresses(targets),
            "block_table_strides": i64([table.stride(0) for table in sources]),
            "num_blocks_ptr": num_blocks,
            "num_blocks_stride": num_blocks.stride(0),
            "num_reqs": batch.num_reqs,
            "BLOCK_SIZE": 4,
        },
        # The sources are addressed too: listed, they live as long as the launch.
        targets + sources,
    )


def compute_slot_mappings(batch: Batch) -> Launch:
    tables = tables_of(batch)
    positions = np.concatenate(
        [start + np.arange(n) for start, n in zip(batch.computed, batch.lengths, strict=False)]
    )
    mappings = untouched(len(tables), batch.num_tokens + 5, dtype=torch.int64)
    return Launch(
        (len(tables), batch.num_reqs + 1),
        {
            "max_num_tokens": mappings.shape[1],
            "idx_mapping": batch.masked_slots(),
            "query_start_loc": i32(batch.bounds),
            "pos": i64(positions),
            "block_table_ptrs": addresses(tables),
            "block_table_strides": i64([table.stride(0) for table in tables]),
            "block_sizes": i32(batch.rng.integers(2, 6, len(tables))),
            "slot_mapping_enabled": torch.tensor(batch.rng.random(len(tables)) < 0.8),
            "dcp_sharded": torch.ones(len(tables), dtype=torch.bool),
            "slot_mappings_ptr": mappings,
            "slot_mappings_stride": mappings.stride(0),
            "cp_rank": 0,
            "CP_SIZE": 1,
            "CP_INTERLEAVE": 1,
            "PAD_ID": -1,
            "TRITON_BLOCK_SIZE": 4,
        },
        [mappings, *tables],
    )


def apply_write(batch: Batch) -> Launch:
    rng = batch.rng
    tables = tables_of(batch)
    # Rows are distinct within a group: the order of a GPU's writes to one place is not defined.
    writes = [(g, row) for g in range(len(tables)) for row in rng.permutation(batch.num_slots)]
    grouped = rng.random() < 0.5
    writes = [w for w in writes if (grouped or w[0] == 0) and rng.random() < 0.7] or [(0, 0)]
    lengths = rng.integers(0, 6, len(writes))
    arguments = {
        "output_ptr": addresses(tables) if grouped else tables[0],
        "output_stride": i64([t.stride(0) for t in tables]) if grouped else tables[0].stride(0),
        "write_indices_ptr": i32([row for _, row in writes]),
        "write_starts_ptr": i32(rng.integers(0, 3, len(writes))),
        "write_contents_ptr": i32(rng.integers(100, 199, int(lengths.sum()) + 1)),
        "write_cu_lens_ptr": i32(np.cumsum(lengths)),
        "write_group_ids_ptr": i32([group for group, _ in writes]) if grouped else None,
        "BLOCK_SIZE": 4,
        "MULTI_GROUP": grouped,
    }
    return Launch((len(writes),), arguments, tables)


LAUNCHES: dict[str, Callable[[Batch], Launch]] = {
    PREFIX + "input_batch._prepare_prefill_inputs_kernel": prepare_prefill_inputs,
    PREFIX + "input_batch._prepare_pos_seq_lens_kernel": prepare_pos_seq_lens,
    PREFIX
    + "input_batch._combine_sampled_and_draft_tokens_kernel": combine_sampled_and_draft_tokens,
    PREFIX + "input_batch._expand_idx_mapping_kernel": expand_idx_mapping,
    PREFIX + "input_batch._get_num_sampled_and_rejected_kernel": get_num_sampled_and_rejected,
    PREFIX + "input_batch._post_update_kernel": post_update,
    PREFIX + "input_batch._post_update_num_computed_tokens_kernel": post_update_num_computed_tokens,
    PREFIX + "block_table._gather_block_tables_kernel": gather_block_tables,
    PREFIX + "block_table._compute_slot_mappings_kernel": compute_slot_mappings,
    PREFIX + "buffer_utils._apply_write_kernel": apply_write,
}


@cache
def triton_kernel(name: str) -> Any:
    from tests.upstream.triton_kernels import interpreted

    module, kernel = name.rsplit(".", 1)
    copy: Any = interpreted(module)
    if hasattr(copy, "_load_ptr"):
        # Imported from the copy, so that it is interpreted too.
        copy._load_ptr = interpreted(PREFIX + "buffer_utils")._load_ptr
    return getattr(copy, kernel)


@pytest.fixture(autouse=True)
def no_warnings_about_uninitialised_values() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def test_every_kernel_is_compared() -> None:
    assert LAUNCHES.keys() == KERNELS.keys()


@pytest.mark.parametrize("name", LAUNCHES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_cpu_kernel_does_what_the_triton_kernel_does(name: str, seed: int) -> None:
    expected = LAUNCHES[name](Batch(np.random.default_rng(seed)))
    triton_kernel(name)[expected.grid](**expected.arguments)
    actual = LAUNCHES[name](Batch(np.random.default_rng(seed)))
    KERNELS[name](**actual.arguments)
    for theirs, ours in zip(expected.results, actual.results, strict=True):
        assert ours.tolist() == theirs.tolist()
