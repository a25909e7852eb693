"""Drives the batched decoding state with a model per request, as the engine does, but without
vLLM."""

from dataclasses import dataclass, field

import torch

from remix_vllm.config import EngineOptions, RequestOptions
from remix_vllm.decoding.geometry import expected_spans
from remix_vllm.decoding.rows import flatten, select_rows
from remix_vllm.decoding.step import decode
from remix_vllm.ops.row_passes import RowPasses
from tests.models.toy import ToyModel
from tests.models.toy_canvas import toy_canvas, write_blends


@dataclass
class Request:
    model: ToyModel
    prompt: list[int]
    max_tokens: int
    options: RequestOptions
    arrival: int = 0
    preempt_at: frozenset[int] = frozenset()
    token_ids: list[int] = field(default_factory=list)
    nfe: int = 0
    nfe_at_block_start: int = 0

    @property
    def finished(self) -> bool:
        return len(self.token_ids) == self.max_tokens


class BatchLoop:
    """Runs requests to their end; a request may arrive late and be preempted at given engine
    steps."""

    def __init__(
        self,
        engine: EngineOptions,
        requests: list[Request],
        num_valid_tokens: int,
        statistics_rows: int = 7,
        passes: RowPasses | None = None,
    ) -> None:
        model = requests[0].model
        self.engine = engine
        self.requests = requests
        self.state, self.limits = toy_canvas(
            model, engine, len(requests) + 1, 400, num_valid_tokens, statistics_rows, passes
        )

    def run(self) -> None:
        slots: dict[int, int] = {}
        free = list(range(len(self.requests) + 1))
        for step in range(10_000):
            running = [
                i for i, r in enumerate(self.requests) if r.arrival <= step and not r.finished
            ]
            if not running and all(r.finished for r in self.requests):
                return
            for i in running:
                request = self.requests[i]
                if i in slots and step in request.preempt_at:
                    self.state.forget(slots[i])
                    free.append(slots.pop(i))
                    request.nfe = request.nfe_at_block_start
                if i not in slots:
                    slots[i] = free.pop(0)
                    self.state.add(
                        slots[i],
                        request.prompt + request.token_ids,
                        len(request.prompt),
                        request.max_tokens,
                        request.options,
                        request.nfe,
                    )
            if running:
                # The batch order is none of a request's business.
                self._step([(i, slots[i]) for i in reversed(running)])
            for i in running:
                if self.requests[i].finished:
                    free.append(slots.pop(i))
        raise AssertionError("requests do not end")

    def _step(self, batch: list[tuple[int, int]]) -> None:
        state = self.state
        requests = [self.requests[i] for i, _ in batch]
        slots = torch.tensor([slot for _, slot in batch])
        lengths = []
        for request in requests:
            start = self._block_start(request)
            visible = min(request.max_tokens, start + self.engine.window)
            lengths.append(len(request.prompt) + visible)
        first = torch.zeros_like(slots)
        tokens = flatten(state, slots, first, torch.tensor(lengths), sum(lengths))
        before = state.read(slots)
        spans = expected_spans(before, first, "none", self.engine.window, 0)
        rows = select_rows(state, before, tokens, spans)
        assert bool(rows.live.all())
        logits = []
        for b, (request, slot) in enumerate(zip(requests, slots.tolist(), strict=True)):
            embeds = request.model.embed(state.tokens[slot, : lengths[b]]).clone()
            start = int(tokens.starts[b])
            write_blends(embeds, state, rows, b, start, request.model.embedding, self.limits.passes)
            logits.append(request.model(embeds)[rows.token_index[rows.batch == b] - start])
        committed = decode(state, before, rows, torch.cat(logits), self.limits)
        for request, new, count in zip(
            requests, committed.tokens.tolist(), committed.lengths.tolist(), strict=True
        ):
            before = self._block_start(request)
            request.token_ids += new[:count]
            request.nfe += 1
            if self._block_start(request) != before:
                request.nfe_at_block_start = request.nfe

    @staticmethod
    def _block_start(request: Request) -> int:
        if request.options.needs_whole_region:
            return 0
        length = request.options.block_length
        return len(request.token_ids) // length * length
