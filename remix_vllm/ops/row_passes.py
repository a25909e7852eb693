"""The readings of a step's logits that a device has its own way to do.

:class:`TorchPasses` is written in torch, for CPUs. A GPU has
:class:`~remix_vllm.ops.triton_passes.TritonPasses`.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from remix_vllm.ops.divergence_bounds import DivergenceBounds
from remix_vllm.ops.row_kernels import RowKernels
from remix_vllm.ops.row_scan import RowScan, scan_rows


class Compared(NamedTuple):
    """Rows of logits and the places in a history that are theirs, ``N`` of each."""

    rows: Tensor
    """Rows of the step's logits, ``[N]`` int64."""
    at: Tensor
    """Places in the history, ``[N]`` int64, distinct where ``kept``."""
    compared: Tensor
    """Whether something is remembered there that counts, ``[N]`` bool."""
    kept: Tensor
    """Whether the row is to be remembered, ``[N]`` bool; where not, anything may be."""
    threshold: Tensor
    """Jensen-Shannon divergence, ``[N]`` float32."""


class RowPasses(Protocol):
    """Passes over logits ``[M, V]`` of any floating dtype."""

    def scan(self, logits: Tensor) -> RowScan:
        """The top and the normaliser of each row."""
        ...

    def replace(
        self, logits: Tensor, logsumexp: Tensor, compared: Compared, old: Tensor, old_lse: Tensor
    ) -> Tensor:
        """Compare rows with the remembered logits ``old`` ``[S, V]``, then remember them instead.

        Args:
            logsumexp: of ``logits``, ``[M]`` float32.
            old_lse: of ``old``, ``[S]`` float32; +inf for a row of zeros.

        Returns:
            whether a row's divergence is above its threshold, ``[N]`` bool; False where it is not
            ``compared``.
        """
        ...

    def weighted_sum(self, ids: Tensor, weights: Tensor, table: Tensor, first_id: int) -> Tensor:
        """Sum of rows of ``table`` ``[V_local, H]``, which has the ids from ``first_id`` on.

        Args:
            ids: ``[N, K]`` int64; those of other ranks add nothing.
            weights: ``[N, K]`` float32, zeros last.

        Returns:
            ``[N, H]`` float32, summed in float32; on a CPU rounded once to the table's dtype, which
            is the inputs' as well.
        """
        ...


class TorchPasses:
    """The passes in torch.

    Few divergences are computed: most are settled by :class:`DivergenceBounds`.
    """

    def __init__(self, vocab_size: int, kernels: RowKernels) -> None:
        self._kernels = kernels
        self._bounds = DivergenceBounds(vocab_size)

    def scan(self, logits: Tensor) -> RowScan:
        return scan_rows(logits, self._kernels)

    def replace(
        self, logits: Tensor, logsumexp: Tensor, compared: Compared, old: Tensor, old_lse: Tensor
    ) -> Tensor:
        moved = torch.zeros_like(compared.compared)
        some = compared.compared.nonzero().squeeze(-1)
        if len(some):
            rows, at = compared.rows[some], compared.at[some]
            threshold = compared.threshold[some]
            moved[some] = self._moved(logits, logsumexp, rows, old, old_lse, at, threshold)
        self._kernels.copy(logits, compared.rows, old, compared.at)
        old_lse[compared.at] = logsumexp[compared.rows]
        return moved

    def _moved(
        self,
        logits: Tensor,
        logsumexp: Tensor,
        rows: Tensor,
        old: Tensor,
        old_lse: Tensor,
        at: Tensor,
        threshold: Tensor,
    ) -> Tensor:
        overlap = self._kernels.overlap(logits, logsumexp, rows, old, old_lse, at)
        moved = self._bounds.surely_moved(overlap, threshold)
        unsure = ~moved & ~self._bounds.surely_stayed(overlap, threshold)
        # A row of zeros has no overlap with anything, and yet only half the divergence.
        unsure |= old_lse[at] == torch.inf
        left = unsure.nonzero().squeeze(-1)
        if len(left):
            rows, at = rows[left], at[left]
            divergence = self._kernels.divergence(logits, logsumexp, rows, old, old_lse, at)
            moved[left] = divergence > threshold[left]
        return moved

    def weighted_sum(self, ids: Tensor, weights: Tensor, table: Tensor, first_id: int) -> Tensor:
        used = int((weights > 0).sum(-1).max()) if len(weights) else 0
        ids, weights = ids[:, :used], weights[:, :used]
        local = ids - first_id
        mine = (local >= 0) & (local < len(table))
        local, weights = torch.where(mine, local, 0), torch.where(mine, weights, 0.0)
        if table.itemsize == 2:
            # The sum is one of float32, but the weights are of the table's dtype: in three parts
            # they have all their digits.
            parts, rest = [], weights
            for _ in range(3):
                parts.append(rest.to(table.dtype))
                rest = rest - parts[-1].float()
            local, weights = local.repeat(1, 3), torch.cat(parts, dim=1)
        return embedding_bag(local, table, per_sample_weights=weights, mode="sum").float()
