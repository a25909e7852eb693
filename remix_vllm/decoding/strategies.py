"""Decoding strategies: how many positions a step may and must decide.

A strategy is three numbers per request: a confidence ``threshold``, a ``cap`` on the rows above it
and a ``floor`` decided whatever their confidence. ``remix`` and ``threshold`` share them and differ
in mixing; ``low_confidence`` (LLaDA's decoding) sets the threshold out of reach and the floor to
its schedule.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.decoding.state import SlotState


class Budget(NamedTuple):
    """What a step may decide, per request (``[R]`` each)."""

    threshold: Tensor
    floor: Tensor
    cap: Tensor


def budget(state: SlotState, undecided: Tensor) -> Budget:
    """Budget of this step.

    Args:
        state: of the ``R`` requests.
        undecided: undecided positions in its active block, ``[R]`` int64, at least one each.
    """
    options = state.options
    # Official code: int(0.7 n) in float32, which equals floor(7 n / 10) for every n below 2000.
    capped = (undecided * 7 // 10).clamp(min=5, max=20)
    cap = torch.where(options.accept_cap & ~options.scheduled, capped, undecided)
    floor = torch.where(options.scheduled, _schedule(state), 1)
    floor = torch.maximum(floor, _deadline(state, undecided))
    threshold = torch.where(options.scheduled, torch.inf, options.threshold)
    return Budget(threshold, torch.minimum(floor, undecided), cap)


def _schedule(state: SlotState) -> Tensor:
    """LLaDA's fixed schedule: a block's positions spread evenly over its steps, the first steps
    taking one more where they do not divide."""
    positions, steps = state.block_undecided, state.options.steps_per_block
    steps = torch.where(steps > 0, steps, positions).clamp_min(1)
    extra = state.steps_in_block < positions % steps
    return (positions // steps + extra).clamp_min(1)


def _deadline(state: SlotState, undecided: Tensor) -> Tensor:
    """Positions to decide now so that the request ends within ``max_nfe`` forwards."""
    later = state.region_len - state.block_end
    block = state.options.block_length
    blocks_later = (later + block - 1) // block
    forwards = state.options.max_nfe - state.nfe
    share = (undecided + later + forwards - 1) // forwards.clamp_min(1)
    return torch.where(forwards <= blocks_later + 1, undecided, torch.minimum(share, undecided))
