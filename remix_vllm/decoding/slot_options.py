"""The options of every slot as tensors, so that one step decides a batch whose rows differ in all
of them."""

from typing import NamedTuple

import torch
from torch import Tensor

from remix_vllm.config import RequestOptions

NO_LIMIT = torch.iinfo(torch.int64).max // 4
"""``max_nfe`` of a request without one: larger than any count, small enough to subtract from."""


class Options(NamedTuple):
    """One column per option of :class:`~remix_vllm.config.RequestOptions`: as many entries as there
    are slots, or as were asked for."""

    threshold: Tensor
    js_threshold: Tensor
    beta_mix: Tensor
    alpha_scale: Tensor
    alpha_min: Tensor
    alpha_max: Tensor
    block_length: Tensor
    max_nfe: Tensor
    steps_per_block: Tensor
    mixing_start: Tensor
    mix_top_k: Tensor
    scheduled: Tensor
    mixes: Tensor
    accept_cap: Tensor
    sticky: Tensor
    across_blocks: Tensor
    exclude_mask: Tensor


class SlotOptions:
    """Options of ``num_slots`` requests: six numbers of float32, five of int64, six of bool, each
    kind in one table, so that they are read together."""

    def __init__(self, num_slots: int, device: torch.device) -> None:
        self._floats = torch.zeros(6, num_slots, dtype=torch.float32, device=device)
        self._counts = torch.zeros(5, num_slots, dtype=torch.int64, device=device)
        self._flags = torch.zeros(6, num_slots, dtype=torch.bool, device=device)
        self.columns = Options(
            *self._floats.unbind(0), *self._counts.unbind(0), *self._flags.unbind(0)
        )

    def of(self, slots: Tensor) -> Options:
        """Options of ``slots`` ``[N]`` int64, copied."""
        tables = (self._floats, self._counts, self._flags)
        return Options(*(row for t in tables for row in t.index_select(1, slots).unbind(0)))

    def set(self, slot: int, options: RequestOptions) -> None:
        values = {
            "threshold": options.threshold,
            "js_threshold": options.js_threshold,
            "beta_mix": options.beta_mix,
            "alpha_scale": options.alpha_scale,
            "alpha_min": options.alpha_min,
            "alpha_max": options.alpha_max,
            "block_length": options.block_length,
            "max_nfe": NO_LIMIT if options.max_nfe is None else options.max_nfe,
            "steps_per_block": options.steps_per_block or 0,
            "mixing_start": options.mixing_start,
            "mix_top_k": options.mix_top_k,
            "scheduled": options.decoding == "low_confidence",
            "mixes": options.mixes,
            "accept_cap": options.accept_cap,
            "sticky": options.rejection == "sticky",
            "across_blocks": options.remembers_across_blocks,
            "exclude_mask": options.exclude_mask,
        }
        for name, value in values.items():
            getattr(self.columns, name)[slot] = value
