"""Bounds on the Jensen-Shannon divergence that cost half of it."""

import math

from torch import Tensor

from remix_vllm.ops.row_kernels import JS_EPSILON

LN_2 = math.log(2)


class DivergenceBounds:
    """Bounds on the Jensen-Shannon divergence from the overlap of two distributions.

    With ``h = 1 - overlap`` (the squared Hellinger distance) the divergence without clamping is at
    least ``ln(2) h`` and at most ``h``, element by element. The overlap takes one exponential per
    logit, the divergence two and a logarithm, and few rows fall between.

    Clamping below at epsilon adds at most ``ln(2)/2 * epsilon`` per element, by subadditivity; and
    takes away at most ``epsilon/2 * (ln((epsilon + y) / (2 epsilon)) + 1)`` where the other
    distribution has ``y``, in sum the most for ``y`` spread evenly over half of the elements.
    """

    def __init__(self, vocab_size: int) -> None:
        total = vocab_size * JS_EPSILON
        spread = 2.0 / vocab_size
        rounding = 1e-5
        self.above = 0.5 * LN_2 * total + rounding
        self.below = (
            0.5 * total * (math.log((JS_EPSILON + spread) / (2 * JS_EPSILON)) + 1) + rounding
        )

    def surely_moved(self, overlap: Tensor, threshold: Tensor) -> Tensor:
        return LN_2 * (1.0 - overlap) - self.below > threshold

    def surely_stayed(self, overlap: Tensor, threshold: Tensor) -> Tensor:
        return 1.0 - overlap + self.above <= threshold
