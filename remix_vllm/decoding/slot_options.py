"""The options of every slot as tensors, so that one step decides a batch whose rows differ in all
of them."""

import torch
from torch import Tensor

from remix_vllm.config import RequestOptions

NO_LIMIT = torch.iinfo(torch.int64).max // 4
"""``max_nfe`` of a request without one: larger than any count, small enough to subtract from."""


class SlotOptions:
    """One column per option of :class:`~remix_vllm.config.RequestOptions`, ``[num_slots]`` each."""

    def __init__(self, num_slots: int, device: torch.device) -> None:
        def column(dtype: torch.dtype) -> Tensor:
            return torch.zeros(num_slots, dtype=dtype, device=device)

        self.threshold = column(torch.float32)
        self.js_threshold = column(torch.float32)
        self.beta_mix = column(torch.float32)
        self.alpha_scale = column(torch.float32)
        self.alpha_min = column(torch.float32)
        self.alpha_max = column(torch.float32)
        self.block_length = column(torch.int64)
        self.max_nfe = column(torch.int64)
        self.steps_per_block = column(torch.int64)
        self.mixing_start = column(torch.int64)
        self.mix_top_k = column(torch.int64)
        self.scheduled = column(torch.bool)
        self.mixes = column(torch.bool)
        self.accept_cap = column(torch.bool)
        self.sticky = column(torch.bool)
        self.across_blocks = column(torch.bool)
        self.exclude_mask = column(torch.bool)

    def set(self, slot: int, options: RequestOptions) -> None:
        self.threshold[slot] = options.threshold
        self.js_threshold[slot] = options.js_threshold
        self.beta_mix[slot] = options.beta_mix
        self.alpha_scale[slot] = options.alpha_scale
        self.alpha_min[slot] = options.alpha_min
        self.alpha_max[slot] = options.alpha_max
        self.block_length[slot] = options.block_length
        self.max_nfe[slot] = NO_LIMIT if options.max_nfe is None else options.max_nfe
        self.steps_per_block[slot] = options.steps_per_block or 0
        self.mixing_start[slot] = options.mixing_start
        self.mix_top_k[slot] = options.mix_top_k
        self.scheduled[slot] = options.decoding == "low_confidence"
        self.mixes[slot] = options.mixes
        self.accept_cap[slot] = options.accept_cap
        self.sticky[slot] = options.rejection == "sticky"
        self.across_blocks[slot] = options.mixes and options.history_across_blocks
        self.exclude_mask[slot] = options.exclude_mask
