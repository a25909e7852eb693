"""A worker that has no vLLM in it: canvas state, a toy model and its pages."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from remix_vllm.config import RESUME_NFE_KEY, EngineOptions
from remix_vllm.decoding.geometry import ExpectedSpans, expected_spans, next_first
from remix_vllm.decoding.rows import StepRows, StepTokens, flatten, select_rows
from remix_vllm.decoding.state import SlotState
from remix_vllm.decoding.step import decode
from remix_vllm.engine.row_bounds import RowBounds
from remix_vllm.engine.step_counts import StepCounts, StepCountsTensor
from tests.models.toy import ToyModel
from tests.models.toy_attention import PagedToy
from tests.models.toy_canvas import toy_canvas, write_blends

VALID_TOKENS = 22
MAX_MODEL_LEN = 96


@dataclass
class Slot:
    model: ToyModel
    number: int
    prompt_len: int
    pages: list[int]
    computed: int


@dataclass
class MockWorker:
    """Does with a scheduler's output what the runner, the model state and the sampler do."""

    options: EngineOptions
    models: dict[str, ToyModel]
    grid_from_zero: bool
    cache: PagedToy
    max_num_seqs: int
    steps_in_flight: int | None = None
    """With how many steps under way it finds out how many rows a request needs, as on a GPU. None:
    it knows, as on a CPU."""
    slots: dict[str, Slot] = field(default_factory=dict)
    rows_spared: int = 0
    """Rows of active blocks that were known to be decided."""
    nfe: int = 0
    counts: StepCounts | None = None
    """What became of the rows of the last step, if it ran a request."""

    def __post_init__(self) -> None:
        model = ToyModel(0)
        self.free = list(range(self.max_num_seqs))
        self.bounds: RowBounds | None = None
        if self.steps_in_flight is not None:
            self.bounds = RowBounds(self.max_num_seqs, self.options.window, self.steps_in_flight)
        self.state, self.limits = toy_canvas(
            model, self.options, self.max_num_seqs, MAX_MODEL_LEN, VALID_TOKENS, 64
        )

    def execute(self, output: Any) -> dict[str, list[int]]:
        """Tokens that each scheduled request returns."""
        for name in sorted(output.finished_req_ids | output.preempted_req_ids):
            self._remove(name)
        for data in output.scheduled_new_reqs:
            self._add(data)
        cached = output.scheduled_cached_reqs
        for name, new in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if new is not None:
                self.slots[name].pages += new[0]
        self.counts = None
        return self._step(output.num_scheduled_tokens) if output.num_scheduled_tokens else {}

    def _remove(self, name: str) -> None:
        slot = self.slots.pop(name, None)
        if slot is not None:
            self.state.forget(slot.number)
            self.free.append(slot.number)

    def _add(self, data: Any) -> None:
        self._remove(data.req_id)
        params = data.sampling_params
        options = self.options.request_options(params.extra_args)
        slot = Slot(
            self.models[data.req_id], self.free.pop(), data.prompt_len,
            list(data.block_ids[0]), data.num_computed_tokens,
        )  # fmt: skip
        self.slots[data.req_id] = slot
        region_len = min(params.max_tokens, MAX_MODEL_LEN - data.prompt_len)
        if self.bounds is not None:
            self.bounds.add(slot.number, options, region_len)
        self.state.add(
            slot.number,
            data.prefill_token_ids,
            data.prompt_len,
            region_len,
            options,
            (params.extra_args or {}).get(RESUME_NFE_KEY, 0),
            data.prompt_len % options.block_length if self.grid_from_zero else 0,
        )

    def _step(self, scheduled: dict[str, int]) -> dict[str, list[int]]:
        batch = [self.slots[name] for name in scheduled]
        numbers = torch.tensor([slot.number for slot in batch])
        first = torch.tensor([slot.computed for slot in batch])
        lengths = torch.tensor(list(scheduled.values()))
        tokens = flatten(self.state, numbers, first, lengths, int(lengths.sum()))
        policy, every = self.options.kv_cache, self.options.refresh_interval
        before = self.state.read(numbers)
        expected = expected_spans(before, first, policy, self.options.window, every)
        rows = self._select_rows(before, tokens, expected)
        logits = [
            self._forward(slot, b, int(lengths[b]), int(expected.extent[b]), rows, tokens.starts)
            for b, slot in enumerate(batch)
        ]
        committed = decode(self.state, before, rows, torch.cat(logits), self.limits)
        if self.bounds is not None:
            self.bounds.report(numbers.numpy(), committed.undecided)
        self.counts = StepCountsTensor(committed.counts).to_cpu_nonblocking().tolists()
        following = next_first(committed.after, first + lengths, expected, policy, every)
        for slot, computed in zip(batch, following.tolist(), strict=True):
            slot.computed = computed
        return {
            name: row[:count]
            for name, row, count in zip(
                scheduled, committed.tokens.tolist(), committed.lengths.tolist(), strict=True
            )
        }

    def _select_rows(
        self, before: SlotState, tokens: StepTokens, expected: ExpectedSpans
    ) -> StepRows:
        needed = select_rows(self.state, before, tokens, expected)
        if self.bounds is None:
            return needed
        counts = self.bounds.counts(before.slots.numpy(), tokens.lengths.numpy())
        rows = select_rows(
            self.state, before, tokens, expected, torch.from_numpy(counts), int(counts.sum())
        )
        assert torch.equal(rows.token_index[rows.wanted], needed.token_index)
        blocks = before.options.block_length.minimum(tokens.lengths)
        self.rows_spared += int((blocks.numpy() - counts).clip(min=0).sum())
        return rows

    def _forward(
        self, slot: Slot, b: int, length: int, extent: int, rows: StepRows, starts: Tensor
    ) -> Tensor:
        state, first = self.state, slot.computed
        embeds = slot.model.embed(state.tokens[slot.number, first : first + length]).clone()
        write_blends(
            embeds, state, rows, b, int(starts[b]), slot.model.embedding, self.limits.passes
        )
        end = first + length
        if self.options.kv_cache == "block":
            size = self.options.window
            extents = [min((i // size + 1) * size, end) for i in range(first, end)]
        else:
            extents = [extent if bool(rows.live[b]) else end] * length
        logits = self.cache.forward(slot.model, slot.pages, first, embeds, extents)
        return logits[rows.token_index[rows.batch == b] - starts[b]]
