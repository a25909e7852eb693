"""The passes over logits on a GPU: one launch each, and nothing the host has to wait for."""

from torch import Tensor

from remix_vllm.ops.row_kernels import GROUP
from remix_vllm.ops.row_passes import Compared
from remix_vllm.ops.row_scan import RowScan
from remix_vllm.ops.triton_mixing import mix_rows
from remix_vllm.ops.triton_rows import compare_rows, scan_rows


class TritonPasses:
    """The :class:`~remix_vllm.ops.row_passes.RowPasses` of a GPU."""

    def scan(self, logits: Tensor) -> RowScan:
        maximum, token, logsumexp, group_max = scan_rows(logits, GROUP)
        return RowScan((maximum - logsumexp).exp(), token, logsumexp, group_max)

    def replace(
        self, logits: Tensor, logsumexp: Tensor, compared: Compared, old: Tensor, old_lse: Tensor
    ) -> Tensor:
        divergence = compare_rows(logits, logsumexp, compared, old, old_lse)
        return compared.compared & (divergence > compared.threshold)

    def weighted_sum(self, ids: Tensor, weights: Tensor, table: Tensor, first_id: int) -> Tensor:
        return mix_rows(ids, weights, table, first_id)
