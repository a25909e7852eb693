"""The CPU kernels against results worked out by hand."""

import numpy as np
import pytest
import torch
from torch import Tensor

from remix_vllm_patches.cpu_kernels import block_table, buffers, input_batch
from remix_vllm_patches.cpu_kernels.arrays import int32_rows, local_positions

UNTOUCHED = -7
PAD = -1


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def untouched(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.full(shape, UNTOUCHED, dtype=dtype)


def addresses(*tables: Tensor) -> Tensor:
    return torch.tensor([table.data_ptr() for table in tables], dtype=torch.uint64)


def strides(*tables: Tensor) -> Tensor:
    return torch.tensor([table.stride(0) for table in tables])


def test_local_positions_restart_for_each_length() -> None:
    assert local_positions(np.array([2, 0, 3])).tolist() == [0, 1, 0, 1, 2]
    assert local_positions(np.array([], dtype=np.int32)).tolist() == []


def test_int32_rows_is_a_view() -> None:
    table = torch.arange(6, dtype=torch.int32).view(2, 3)
    view = int32_rows(table.data_ptr(), 2, 3)
    assert view.tolist() == [[0, 1, 2], [3, 4, 5]]
    view[1, 0] = 9
    assert table[1, 0] == 9


class TestPreparePrefillInputs:
    """Three slots with sequences of up to six tokens; slot 1's prompt is 5 long, slot 2's is 4."""

    def run(self, slots: list[int], bounds: list[int], computed: Tensor) -> tuple[Tensor, Tensor]:
        tokens = torch.arange(18, dtype=torch.int32).view(3, 6) + 100
        input_ids = untouched(bounds[-1] + 2)
        following = untouched(2, 3)
        input_batch.prepare_prefill_inputs(
            input_ids,
            following,
            following.stride(0),
            2,
            torch.tensor(slots),
            torch.tensor(bounds, dtype=torch.int32),
            tokens,
            tokens.stride(0),
            ints(3, 5, 4),
            computed,
            BLOCK_SIZE=1024,
            LOOKAHEAD_BLOCK=2,
        )
        return input_ids, following

    def test_a_chunk_takes_up_where_the_last_ended(self) -> None:
        input_ids, following = self.run([1], [0, 2], ints(0, 1, 0))
        assert input_ids.tolist() == [107, 108, UNTOUCHED, UNTOUCHED]
        assert following[:, 1].tolist() == [109, 110]

    def test_lookahead_is_zero_after_the_prompt(self) -> None:
        _, following = self.run([2, 1], [0, 3, 5], ints(0, 3, 0))
        assert following.tolist() == [[UNTOUCHED, 0, 115], [UNTOUCHED, 0, 0]]

    def test_generating_requests_are_left_alone(self) -> None:
        input_ids, following = self.run([0, 2], [0, 2, 5], ints(3, 0, 1))
        assert input_ids.tolist() == [UNTOUCHED] * 2 + [113, 114, 115] + [UNTOUCHED] * 2
        assert following[:, 0].tolist() == [UNTOUCHED] * 2

    def test_a_step_may_reach_beyond_the_last_table_row(self) -> None:
        input_ids, _ = self.run([2], [0, 5], ints(0, 0, 2))
        assert input_ids[:4].tolist() == [114, 115, 116, 117]

    def test_bounds_may_be_padded(self) -> None:
        input_ids, _ = self.run([0], [0, 3, 3, 3], ints(0, 0, 0))
        assert input_ids.tolist() == [100, 101, 102, UNTOUCHED, UNTOUCHED]


def test_positions_and_lengths_follow_what_is_computed_and_unused_rows_are_empty() -> None:
    positions, seq_lens = untouched(8, dtype=torch.int64), untouched(5)
    input_batch.prepare_pos_seq_lens(
        positions, seq_lens, torch.tensor([2, 0]), ints(0, 3, 4, 4), ints(7, 0, 10), 5, 1024
    )
    assert positions.tolist() == [10, 11, 12, 7] + [UNTOUCHED] * 4
    assert seq_lens.tolist() == [13, 8, 0, 0, 0]


class TestCombineSampledAndDraftTokens:
    """Two slots with prompts of 4 and 5 tokens; the batch holds slot 1, then slot 0."""

    def run(self, seq_lens: Tensor, bounds: Tensor, cu_logits: Tensor, new: int) -> list[list[int]]:
        input_ids = untouched(int(bounds[-1]))
        indices = untouched(int(cu_logits[-1]), dtype=torch.int64)
        drafts = torch.tensor([[10, 11, 12], [20, 21, 22]])
        input_batch.combine_sampled_and_draft_tokens(
            input_ids,
            torch.tensor([1, 0]),
            torch.tensor([[50], [51]]),
            bounds,
            seq_lens,
            ints(4, 5),
            drafts,
            drafts.stride(0),
            cu_logits,
            indices,
            BLOCK_SIZE=4,
            NUM_NEW_SAMPLED_TOKENS=new,
        )
        return [input_ids.tolist(), indices.tolist()]

    def test_a_canvas_beside_a_prompt_chunk(self) -> None:
        input_ids, indices = self.run(ints(8, 2), ints(0, 3, 5), ints(0, 3, 3), new=0)
        assert input_ids == [20, 21, 22, UNTOUCHED, UNTOUCHED]
        assert indices == [0, 1, 2]

    def test_a_prompt_that_ends_keeps_its_tokens(self) -> None:
        input_ids, indices = self.run(ints(5, 8), ints(0, 2, 4), ints(0, 0, 2), new=0)
        assert input_ids == [UNTOUCHED, UNTOUCHED, 10, 11]
        assert indices == [2, 3]

    def test_a_sampled_token_comes_before_the_drafts(self) -> None:
        input_ids, indices = self.run(ints(8, 5), ints(0, 3, 4), ints(0, 3, 4), new=1)
        assert input_ids == [51, 20, 21, 50]
        assert indices == [0, 1, 2, 3]

    def test_logits_that_begin_inside_the_prompt_leave_its_token(self) -> None:
        input_ids, _ = self.run(ints(6, 3), ints(0, 2, 4), ints(0, 2, 2), new=1)
        assert input_ids == [UNTOUCHED, 20, UNTOUCHED, UNTOUCHED]


def test_a_batch_without_logits_or_room_for_drafts() -> None:
    """What the runner launches if the canvas does not travel as draft tokens."""
    input_ids, indices, drafts = untouched(4), untouched(0, dtype=torch.int64), torch.zeros(2, 0)
    last, slots, bounds, none = (
        torch.zeros(2, 1),
        torch.tensor([1, 0]),
        ints(0, 2, 4),
        ints(0, 0, 0),
    )
    input_batch.combine_sampled_and_draft_tokens(
        input_ids, slots, last, bounds, ints(9, 9), ints(4, 5), drafts, 0, none, indices, 1, 0
    )
    input_batch.expand_idx_mapping(slots, indices, untouched(0), none, 1)
    assert input_ids.tolist() == [UNTOUCHED] * 4


def test_logits_rows_know_their_slot_and_their_number() -> None:
    slots, local = untouched(5, dtype=torch.int64), untouched(5)
    input_batch.expand_idx_mapping(torch.tensor([4, 9, 2]), slots, local, ints(0, 2, 2, 5), 4)
    assert slots.tolist() == [4, 4, 2, 2, 2]
    assert local.tolist() == [0, 1, 0, 1, 2]


def test_inside_a_prompt_nothing_is_sampled_or_rejected() -> None:
    num_sampled, num_rejected = ints(1, 2, 1), untouched(3)
    input_batch.get_num_sampled_and_rejected(
        num_sampled,
        num_rejected,
        ints(9, 9, 3),
        ints(0, 4, 8, 9),
        torch.tensor([0, 1, 2]),
        ints(9, 4, 6),
    )
    assert num_sampled.tolist() == [1, 2, 0]
    assert num_rejected.tolist() == [3, 2, 0]


class TestPostUpdate:
    """Slots 0 to 2 hold 2, 3 and 4 tokens; the batch holds slot 2, a masked row, and slot 0."""

    def setup_method(self) -> None:
        self.computed = ints(1, 2, 3)
        self.last = torch.tensor([[90], [91], [92]])
        self.counts = torch.zeros(3, 5, dtype=torch.int32)
        self.tokens = untouched(3, 8)
        self.total_len = ints(2, 3, 4)

    def run(self, bounds: Tensor | None, counts: Tensor | None) -> None:
        sampled = torch.tensor([[3, 3, 1], [4, 4, 4], [0, 0, 0]])
        input_batch.post_update(
            torch.tensor([2, -1, 0]),
            self.computed,
            self.last,
            counts,
            0 if counts is None else counts.stride(0),
            sampled,
            sampled.stride(0),
            ints(3, 3, 0),
            ints(1, 0, 4),
            bounds,
            self.tokens,
            self.tokens.stride(0),
            self.total_len,
            num_warps=1,
        )

    def test_tokens_are_appended_and_counted(self) -> None:
        self.run(ints(0, 4, 6, 10), self.counts)
        assert self.tokens[2].tolist() == [UNTOUCHED] * 4 + [3, 3, 1, UNTOUCHED]
        assert self.total_len.tolist() == [2, 3, 7]
        assert self.last.flatten().tolist() == [90, 91, 1]
        assert self.counts.tolist() == [[0] * 5, [0] * 5, [0, 1, 0, 2, 0]]

    def test_rejected_tokens_do_not_count_as_computed(self) -> None:
        self.run(ints(0, 4, 6, 10), None)
        assert self.computed.tolist() == [1, 2, 6]

    def test_without_bounds_only_rejections_count(self) -> None:
        self.run(None, None)
        assert self.computed.tolist() == [-3, 2, 2]


def test_every_token_of_the_batch_counts_as_computed() -> None:
    computed = ints(1, 2, 3)
    input_batch.post_update_num_computed_tokens(torch.tensor([2, 0]), computed, ints(0, 4, 5, 5))
    assert computed.tolist() == [2, 2, 7]


def test_block_tables_of_several_groups_are_gathered() -> None:
    sources = [
        torch.arange(12, dtype=torch.int32).view(3, 4),
        torch.arange(18, dtype=torch.int32).view(3, 6),
    ]
    targets = [untouched(3, 4), untouched(3, 6)]
    num_blocks = torch.tensor([[1, 2, 3], [4, 0, 6]], dtype=torch.int32)
    block_table.gather_block_tables(
        torch.tensor([2, 0]),
        addresses(*sources),
        addresses(*targets),
        strides(*sources),
        num_blocks,
        num_blocks.stride(0),
        2,
        BLOCK_SIZE=1024,
    )
    assert targets[0].tolist() == [[8, 9, 10, -7], [0, -7, -7, -7], [-7] * 4]
    assert targets[1].tolist() == [[12, 13, 14, 15, 16, 17], [0, 1, 2, 3, -7, -7], [-7] * 6]


class TestComputeSlotMappings:
    """Three slots; group 0 has blocks of 2 tokens, group 1 blocks of 3."""

    tables = (
        torch.arange(12, dtype=torch.int32).view(3, 4) + 10,
        torch.arange(9, dtype=torch.int32).view(3, 3) + 50,
    )

    def run(self, slots: list[int], enabled: list[bool] | None = None) -> list[list[int]]:
        mappings = untouched(2, 7, dtype=torch.int64)
        block_table.compute_slot_mappings(
            7,
            torch.tensor(slots),
            ints(0, 3, 5),
            torch.tensor([3, 4, 5, 0, 1]),
            addresses(*self.tables),
            strides(*self.tables),
            ints(2, 3),
            torch.tensor(enabled or [True, True]),
            torch.tensor([True, True]),
            mappings,
            mappings.stride(0),
            0,
            CP_SIZE=1,
            CP_INTERLEAVE=1,
            PAD_ID=PAD,
            TRITON_BLOCK_SIZE=1024,
        )
        return mappings.tolist()

    def test_every_group_maps_by_its_own_table(self) -> None:
        assert self.run([1, 0]) == [
            [31, 32, 33, 20, 21, PAD, PAD],
            [162, 163, 164, 150, 151, PAD, PAD],
        ]

    def test_a_dummy_request_gets_no_slot(self) -> None:
        assert self.run([-1, 2]) == [
            [PAD, PAD, PAD, 36, 37, PAD, PAD],
            [PAD, PAD, PAD, 168, 169, PAD, PAD],
        ]

    def test_only_dummy_requests(self) -> None:
        assert self.run([-1, -1]) == [[PAD] * 7] * 2

    def test_a_group_without_slot_mapping_is_all_padding(self) -> None:
        assert self.run([1, 0], [False, True])[0] == [PAD] * 7

    def test_large_block_numbers_do_not_overflow(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = torch.full((3, 4), 2**30, dtype=torch.int32)
        monkeypatch.setattr(TestComputeSlotMappings, "tables", (table, self.tables[1]))
        assert self.run([1, 0])[0][:2] == [2**31 + 1, 2**31]


class TestApplyWrite:
    def test_rows_are_written_from_their_start(self) -> None:
        table = torch.zeros(3, 4, dtype=torch.int32)
        buffers.apply_write(
            table,
            table.stride(0),
            ints(2, 0),
            ints(1, 0),
            ints(5, 6, 7, 8),
            ints(3, 4),
            None,
            BLOCK_SIZE=1024,
            MULTI_GROUP=False,
        )
        assert table.tolist() == [[8, 0, 0, 0], [0, 0, 0, 0], [0, 5, 6, 7]]

    def test_single_elements(self) -> None:
        column = torch.zeros(3)
        buffers.apply_write(
            column, 1, ints(2, 0), ints(0, 0), torch.tensor([0.5, 1.5]), ints(1, 2), None, 1, False
        )
        assert column.tolist() == [1.5, 0.0, 0.5]

    def test_the_later_of_two_writes_holds(self) -> None:
        table = torch.zeros(1, 3, dtype=torch.int64)
        buffers.apply_write(
            table, 3, ints(0, 0), ints(0, 1), torch.tensor([1, 2, 3]), ints(2, 3), None, 1, False
        )
        assert table.tolist() == [[1, 3, 0]]

    def test_several_groups(self) -> None:
        tables = [torch.zeros(2, 3, dtype=torch.int32), torch.zeros(2, 2, dtype=torch.int32)]
        buffers.apply_write(
            addresses(*tables),
            strides(*tables),
            ints(1, 0, 1),
            ints(0, 1, 0),
            ints(1, 2, 3, 4, 5),
            ints(2, 3, 5),
            ints(0, 0, 1),
            BLOCK_SIZE=1024,
            MULTI_GROUP=True,
        )
        assert tables[0].tolist() == [[0, 3, 0], [1, 2, 0]]
        assert tables[1].tolist() == [[0, 0], [4, 5]]
