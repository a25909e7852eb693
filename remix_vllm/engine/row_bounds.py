"""How many logits rows each request needs at most, as far as the host knows without waiting.

How many positions of its block a request has left to decide is known to the device. To read it for
the step that is being prepared the host would have to wait until the device is done with the step
before; it knows it of the last step whose tokens the scheduler has seen, which is the one before,
or with asynchronous scheduling the one before that.

Within a block the number only falls. When the block is done it rises, but with asynchronous
scheduling the scheduler did not know that either: the step was planned for the block that is done,
and is left alone, if the canvas ends where the block ends (``window`` is the request's
``block_length``). Else the bound is the whole block.

Every rank of a tensor-parallel group finds the same numbers, so that all of them have as many rows
to gather: which report is read depends on counting steps, not on which has arrived.
"""

from collections import deque
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from remix_vllm.config import RequestOptions


class Report(NamedTuple):
    """What a step left undecided, on its way to the host."""

    slots: np.ndarray
    added: np.ndarray
    """Requests each slot had held by then, which tells this one from the next."""
    undecided: Tensor
    arrived: torch.Event | None


class RowBounds:
    """Bounds of every slot.

    Args:
        num_slots: requests held at once.
        window: canvas positions from the active block's start.
        steps_in_flight: steps under way while one is planned: 1 with asynchronous scheduling,
            else 0.
    """

    def __init__(self, num_slots: int, window: int, steps_in_flight: int) -> None:
        self._window = window
        self._in_flight = steps_in_flight
        self._bound = np.zeros(num_slots, dtype=np.int64)
        self._most = np.zeros(num_slots, dtype=np.int64)
        self._follows = np.zeros(num_slots, dtype=np.bool_)
        self._added = np.zeros(num_slots, dtype=np.int64)
        self._reports: deque[Report] = deque()

    def add(self, slot: int, options: RequestOptions, region_len: int) -> None:
        """A request starts, or starts again, in ``slot``."""
        whole = options.needs_whole_region
        self._most[slot] = region_len if whole else options.block_length
        self._bound[slot] = self._most[slot]
        one_block = self._in_flight == 0 or options.block_length == self._window
        self._follows[slot] = one_block and not whole
        self._added[slot] += 1

    def counts(self, slots: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Rows of each request in the step that is being prepared, ``[R]`` int64."""
        while len(self._reports) > self._in_flight:
            self._read(self._reports.popleft())
        return np.minimum(self._bound[slots], lengths)

    def report(self, slots: np.ndarray, undecided: Tensor) -> None:
        """Take note of a step's ``undecided`` ``[R]``; nothing waits for them here."""
        on_host = undecided.to("cpu", non_blocking=True)
        arrived = None
        if undecided.device.type != "cpu":
            arrived = torch.Event(undecided.device)
            arrived.record()
        self._reports.append(Report(slots, self._added[slots], on_host, arrived))

    def _read(self, report: Report) -> None:
        if report.arrived is not None:
            report.arrived.synchronize()
        same = (self._added[report.slots] == report.added) & self._follows[report.slots]
        slots, left = report.slots[same], report.undecided.numpy()[same]
        # None left, or the step was left alone: another block may have begun.
        self._bound[slots] = np.where(left > 0, left, self._most[slots])
