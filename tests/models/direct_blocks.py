"""Block-causal forwards of a served model on the CPU, over K/V that stay from one to the next."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor
from vllm.v1.worker.utils import AttentionGroup

from remix_vllm.engine.attention import block_rows, metadata
from tests.models.direct_forward import BLOCK_SIZE, DirectModel

CPU = torch.device("cpu")


class BlockForwards:
    """A few sequences on one checkpoint. Use within :func:`tests.models.direct_forward.one_rank`.

    Args:
        path: the checkpoint; its config states the block length.
        num_sequences: sequences that keep their keys and values.
        max_length: of each.
    """

    def __init__(self, path: Path, num_sequences: int, max_length: int = 256) -> None:
        self.direct = DirectModel(path)
        self.model = self.direct.model
        self.block_length: int = self.direct.vllm_config.model_config.hf_config.block_size
        pages = -(-max_length // BLOCK_SIZE)
        # Page 0 is left unused, and pages of the sequences alternate, as may happen in the engine.
        self.table = 1 + torch.arange(num_sequences * pages, dtype=torch.int32)
        self.table = self.table.view(pages, num_sequences).T.contiguous()
        layers = self.direct.attention_layers(num_sequences * pages + 1)
        first = next(iter(layers.values()))
        self.group = AttentionGroup(
            first.get_attn_backend(),
            list(layers),
            first.get_kv_cache_spec(self.direct.vllm_config),
            0,
            metadata_builders=[self.direct.metadata_builder(layers)],
        )

    def logits(self, starts: Sequence[int], spans: Sequence[Tensor]) -> list[Tensor]:
        """Logits ``[length, vocabulary]`` of one span of each sequence, all in one forward.

        Args:
            starts: position of each span's first token.
            spans: token ids ``[length]`` or input embeddings ``[length, hidden]``.
        """
        lengths = [len(span) for span in spans]
        positions = [
            torch.arange(start, start + length)
            for start, length in zip(starts, lengths, strict=True)
        ]
        slots = [
            row[position // BLOCK_SIZE].long() * BLOCK_SIZE + position % BLOCK_SIZE
            for row, position in zip(self.table, positions, strict=True)
        ]
        layers_metadata = metadata(
            block_rows(np.array(starts), np.array(lengths), self.block_length, CPU),
            sum(lengths),
            [[self.group]],
            (self.table,),
            torch.cat(slots)[None],
            SimpleNamespace(kv_cache_groups=[None]),
            for_capture=False,
        )
        joined = self.direct.forward(torch.cat(list(spans)), torch.cat(positions), layers_metadata)
        return list(joined.split(lengths))
