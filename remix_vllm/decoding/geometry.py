"""Which positions a step computes: the span of a sequence, under each KV policy.

A sequence is the prompt, what is decided, and the canvas. Under every policy a step computes one
span ``[first, end)`` of absolute positions, whose queries attend to ``[0, extent)`` or, for
block-causal models, to the end of their own block:

========  =======================================  ==========================  ====================
policy    first step of a block, refreshes         other steps                 extent
========  =======================================  ==========================  ====================
none      whole sequence                           whole sequence              end
prefix    whole sequence                           active block to canvas end  end
dual      whole sequence                           active block                canvas end
block     from the last block with final K/V on    active block                end of each block
========  =======================================  ==========================  ====================

The scheduler asks :class:`Geometry` in numbers; the worker, which knows what is decided one step
earlier, asks :func:`expected_spans` on tensors. A step whose span is not the expected one is left
alone.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.config import KVCache
from remix_vllm.decoding.state import SlotState


class Span(NamedTuple):
    """Absolute positions ``[first, end)``."""

    first: int
    end: int


@dataclass(frozen=True)
class Geometry:
    """Spans of one request."""

    policy: KVCache
    prompt_len: int
    region_len: int
    block_length: int
    window: int
    grid_offset: int
    """Prompt tokens inside the first active block: 0 unless blocks are counted from position 0."""
    refresh_interval: int
    """Steps after which a block's K/V are refreshed (``prefix``, ``dual``); 0 is never."""

    def block_start(self, returned: int) -> int:
        """Generation index at which the active block starts once ``returned`` tokens are final."""
        blocks = (returned + self.grid_offset) // self.block_length
        return blocks * self.block_length - self.grid_offset

    def block_end(self, start: int) -> int:
        return min(start + self.block_length, self.region_len)

    def blocks_done(self, returned: int) -> int:
        """Blocks that hold nothing but the first ``returned`` tokens."""
        if returned == self.region_len:
            return -(-(returned + self.grid_offset) // self.block_length)
        return (returned + self.grid_offset) // self.block_length

    def refreshes(self, step_in_block: int) -> bool:
        """Whether this step of a block computes the whole sequence."""
        if self.policy == "none" or step_in_block == 0:
            return True
        return self.refresh_interval > 0 and step_in_block % self.refresh_interval == 0

    def span(self, start: int, step_in_block: int, computed: int) -> Span:
        """Span of a denoising step.

        Args:
            start: generation index of the active block's start.
            step_in_block: steps this block has had.
            computed: absolute positions whose K/V are final (``block`` only).
        """
        if self.policy == "block":
            return Span(computed, self.prompt_len + self.block_end(start))
        canvas_end = self.prompt_len + min(self.region_len, start + self.window)
        if self.refreshes(step_in_block):
            return Span(0, canvas_end)
        if self.policy == "prefix":
            return Span(self.prompt_len + start, canvas_end)
        return Span(self.prompt_len + start, self.prompt_len + self.block_end(start))

    def denoises(self, span: Span, start: int, step_in_block: int) -> bool:
        """Whether the worker decides something in a step over ``span`` when its state is at this
        step of the block at ``start``; the counterpart of :func:`expected_spans`."""
        expected = self.span(start, step_in_block, computed=span.first)
        if self.policy == "block":
            return span.end == expected.end and span.first <= self.prompt_len + start
        return span == expected


class ExpectedSpans(NamedTuple):
    """Per request, ``[R]`` int64 each."""

    first: Tensor
    end: Tensor
    extent: Tensor
    block_start: Tensor
    """Absolute position at which the active block starts."""
    block_end: Tensor


def expected_spans(
    state: SlotState,
    first: Tensor,
    policy: KVCache,
    window: int,
    refresh_interval: int,
) -> ExpectedSpans:
    """Spans that the canvas state calls for.

    Args:
        state: of the ``R`` requests.
        first: where each span begins as planned; ``block`` may begin anywhere before the block.
    """
    start, prompt = state.block_start, state.prompt_len
    block_start, block_end = prompt + start, prompt + state.block_end
    if policy == "block":
        begin = torch.minimum(first, block_start)
        return ExpectedSpans(begin, block_end, block_end, block_start, block_end)
    canvas_end = prompt + torch.minimum(state.region_len, start + window)
    if policy == "none":
        begin = torch.zeros_like(start)
        return ExpectedSpans(begin, canvas_end, canvas_end, block_start, block_end)
    whole = state.steps_in_block == 0
    if refresh_interval:
        whole |= state.steps_in_block % refresh_interval == 0
    begin = torch.where(whole, 0, block_start)
    end = canvas_end
    if policy == "dual":
        end = torch.where(whole, canvas_end, block_end)
    return ExpectedSpans(begin, end, canvas_end, block_start, block_end)


def next_first(
    after: SlotState,
    end: Tensor,
    before: ExpectedSpans,
    policy: KVCache,
    refresh_interval: int,
) -> Tensor:
    """Where the next span begins, after a step up to ``end`` has been decided: ``[R]`` int64.

    The runner keeps it as ``num_computed_tokens``. K/V of a block just decided are those of its
    masks and blends: a block-causal span begins with it again.
    """
    if policy == "block":
        return torch.minimum(end, before.block_start)
    block_start = after.prompt_len + after.block_start
    return expected_spans(after, block_start, policy, 0, refresh_interval).first
