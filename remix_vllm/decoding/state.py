"""Per-slot decoding state: what is decided, what mixes, and what the rejection rule remembers.

A *slot* is the index the model runner gives a running request. Positions are *generation indices*,
counted from the prompt's end, unless a name says otherwise. Only
:func:`remix_vllm.decoding.step.decode` writes here between :meth:`CanvasState.add` and the slot's
next use.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.config import RequestOptions
from remix_vllm.decoding.history import History
from remix_vllm.decoding.slot_options import Options, SlotOptions

UNPINNED = -1
TOP_K = 50
"""Mixing candidates of a position: the most that ``mix_top_k`` may ask for (official code)."""


def num_places(num_slots: int, history_rows: int) -> int:
    """Positions for which mixing state is held: those of each slot, and one that takes what is
    nobody's."""
    return num_slots * history_rows + 1


class SlotState(NamedTuple):
    """Where ``R`` requests are, ``[R]`` int64 each, as read at one time."""

    slots: Tensor
    prompt_len: Tensor
    region_len: Tensor
    """Positions to generate in all."""
    block_start: Tensor
    committed: Tensor
    """Tokens returned."""
    steps: Tensor
    steps_in_block: Tensor
    block_undecided: Tensor
    """Undecided positions of the active block when it began."""
    nfe: Tensor
    options: Options

    @property
    def block_end(self) -> Tensor:
        return torch.minimum(self.block_start + self.options.block_length, self.region_len)


COUNTERS = len(SlotState._fields) - 2


class CanvasState:
    """State of ``num_slots`` requests.

    Memory: ``num_slots * history_rows * 12 * top_k`` bytes for the mixing candidates, plus 17 bytes
    per slot and position, beside the history.

    Args:
        num_slots: requests held at once.
        history: the rejection rule's memory, of :func:`num_places` positions.
        max_model_len: longest prompt plus generation.
        history_rows: positions per slot that may mix; position ``g`` has the place
            ``g % history_rows`` of the slot's, so no two positions that may mix at the same time
            may be that far apart.
        vocab_size: columns of the logits.
        mask_token_id: id fed at undecided positions.
        top_k: mixing candidates kept per position.
    """

    def __init__(
        self,
        num_slots: int,
        history: History,
        max_model_len: int,
        history_rows: int,
        vocab_size: int,
        mask_token_id: int,
        top_k: int,
        device: torch.device,
    ) -> None:
        self.mask_token_id = mask_token_id
        self.vocab_size = vocab_size
        self.history_rows = history_rows
        self.top_k = top_k
        self.device = device

        # By absolute position: the prompt, then decided tokens and masks.
        self.tokens = torch.zeros(num_slots, max_model_len, dtype=torch.int64, device=device)
        self.decided = torch.zeros(num_slots, max_model_len, dtype=torch.bool, device=device)
        # A resumed request decides again what it has already returned; these tokens are kept.
        self.pinned = torch.full_like(self.tokens, UNPINNED)

        # One table, so that a step reads and writes them together; in the order of SlotState.
        self._counters = torch.zeros(COUNTERS, num_slots, dtype=torch.int64, device=device)
        (
            self.prompt_len,
            self.region_len,
            self.block_start,
            self.committed,
            self.steps,
            self.steps_in_block,
            self.block_undecided,
            self.nfe,
        ) = self._counters.unbind(0)
        self.options = SlotOptions(num_slots, device)

        # Known to the host, which need not ask the device whether there are any, and leaves out of
        # a step what is for nobody.
        self.resumed: set[int] = set()
        """Slots with pinned tokens."""
        self.few_candidates: set[int] = set()
        """Slots whose request mixes fewer candidates than are kept."""
        self.sticky: set[int] = set()
        """Slots whose request forgets a rejected distribution (official rules)."""
        self.deciding_masks: set[int] = set()
        """Slots whose request may decide a position as the mask (official rules)."""
        self.across_blocks: set[int] = set()
        """Slots whose request keeps its history from block to block (official rules)."""

        rows = num_places(num_slots, history_rows)
        self.mixed = torch.zeros(rows, dtype=torch.bool, device=device)
        self.candidate_ids = torch.zeros(rows, top_k, dtype=torch.int64, device=device)
        self.candidate_weights = torch.zeros(rows, top_k, dtype=torch.float32, device=device)
        self.has_history = torch.zeros(rows, dtype=torch.bool, device=device)
        self.history = history

    def add(
        self,
        slot: int,
        token_ids: Sequence[int],
        prompt_len: int,
        region_len: int,
        options: RequestOptions,
        nfe: int = 0,
        grid_offset: int = 0,
    ) -> None:
        """Start a request in ``slot``, or resume one after preemption.

        Args:
            token_ids: the prompt, followed by the tokens already returned.
            prompt_len: how many of them are the prompt.
            region_len: positions to generate in all.
            nfe: forwards done before the block in which a resumed request starts again.
            grid_offset: prompt tokens inside the first active block.
        """
        returned = len(token_ids) - prompt_len
        start = -grid_offset
        if not options.needs_whole_region:
            start += (returned + grid_offset) // options.block_length * options.block_length
        fixed = prompt_len + max(start, 0)
        ids = torch.tensor(token_ids, dtype=torch.int64)
        self.tokens[slot].fill_(self.mask_token_id)
        self.tokens[slot, :fixed] = ids[:fixed]
        self.decided[slot] = False
        self.decided[slot, :fixed] = True
        self.pinned[slot].fill_(UNPINNED)
        self.pinned[slot, fixed : len(token_ids)] = ids[fixed:]

        self.prompt_len[slot] = prompt_len
        self.region_len[slot] = region_len
        self.block_start[slot] = start
        self.committed[slot] = returned
        # A block past the first was preceded by at least one step, all that `mixing_start` can ask.
        self.steps[slot] = 1 if start > -grid_offset else 0
        self.steps_in_block[slot] = 0
        self.nfe[slot] = nfe
        self.options.set(slot, options)
        self.forget(slot)
        if fixed < len(token_ids):
            self.resumed.add(slot)
        if options.mix_top_k < self.top_k:
            self.few_candidates.add(slot)
        if options.rejection == "sticky":
            self.sticky.add(slot)
        if not options.exclude_mask:
            self.deciding_masks.add(slot)
        if options.remembers_across_blocks:
            self.across_blocks.add(slot)

    def forget(self, slot: int) -> None:
        """Drop the mixing state and the history of ``slot``."""
        rows = slice(slot * self.history_rows, (slot + 1) * self.history_rows)
        self.mixed[rows] = False
        self.has_history[rows] = False
        for slots in (
            self.resumed,
            self.few_candidates,
            self.sticky,
            self.deciding_masks,
            self.across_blocks,
        ):
            slots.discard(slot)

    def read(self, slots: Tensor) -> SlotState:
        """State of ``slots`` ``[R]`` int64."""
        counters = self._counters.index_select(1, slots).unbind(0)
        return SlotState._make((slots, *counters, self.options.of(slots)))

    def write(self, state: SlotState) -> None:
        """The inverse of :meth:`read`, but for the options."""
        # Between the slots and the options are the counters.
        self._counters.index_copy_(1, state.slots, torch.stack(state[1:-1]))
