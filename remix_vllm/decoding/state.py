"""Per-slot decoding state: what is decided, what mixes, and what the rejection rule remembers.

A *slot* is the index the model runner gives a running request. Positions are *generation indices*,
counted from the prompt's end, unless a name says otherwise. Only
:func:`remix_vllm.decoding.step.decode` writes here between :meth:`CanvasState.add` and the slot's
next use.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from remix_vllm.config import RequestOptions
from remix_vllm.decoding.history import History
from remix_vllm.decoding.slot_options import SlotOptions

UNPINNED = -1
TOP_K = 50
"""Mixing candidates of a position: the most that ``mix_top_k`` may ask for (official code)."""


def num_places(num_slots: int, history_rows: int) -> int:
    """Positions for which mixing state is held: those of each slot, and one that takes what is
    nobody's."""
    return num_slots * history_rows + 1


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

        def scalars() -> Tensor:
            return torch.zeros(num_slots, dtype=torch.int64, device=device)

        # By absolute position: the prompt, then decided tokens and masks.
        self.tokens = torch.zeros(num_slots, max_model_len, dtype=torch.int64, device=device)
        self.decided = torch.zeros(num_slots, max_model_len, dtype=torch.bool, device=device)
        # A resumed request decides again what it has already returned; these tokens are kept.
        self.pinned = torch.full_like(self.tokens, UNPINNED)

        self.prompt_len = scalars()
        self.region_len = scalars()
        self.block_start = scalars()
        self.committed = scalars()
        self.steps = scalars()
        self.steps_in_block = scalars()
        self.block_undecided = scalars()
        self.nfe = scalars()
        self.options = SlotOptions(num_slots, device)

        # Known to the host, which need not ask the device whether there are any.
        self.deciding_masks: set[int] = set()
        """Slots whose request may decide a position as the mask (official rules)."""

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
        if not options.exclude_mask:
            self.deciding_masks.add(slot)

    def forget(self, slot: int) -> None:
        """Drop the mixing state and the history of ``slot``."""
        rows = slice(slot * self.history_rows, (slot + 1) * self.history_rows)
        self.mixed[rows] = False
        self.has_history[rows] = False
        self.deciding_masks.discard(slot)

    def block_end(self, slots: Tensor) -> Tensor:
        """End of each slot's active block: ``[R]`` int64."""
        end = self.block_start[slots] + self.options.block_length[slots]
        return torch.minimum(end, self.region_len[slots])
