"""The real scheduler with a worker that has no vLLM in it: canvas state, a toy model and its
pages."""

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix_vllm.config import RESUME_NFE_KEY, EngineOptions
from remix_vllm.decoding.geometry import expected_spans, next_first
from remix_vllm.decoding.rows import StepRows, flatten, select_rows
from remix_vllm.decoding.state import CanvasState
from remix_vllm.decoding.step import StepLimits, decode
from remix_vllm.ops.mixed_embedding import mixed_embedding
from tests.models.toy import ToyModel
from tests.models.toy_attention import PagedToy

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
    slots: dict[str, Slot] = field(default_factory=dict)
    nfe: int = 0

    def __post_init__(self) -> None:
        model = ToyModel(0)
        self.free = list(range(self.max_num_seqs))
        self.state = CanvasState(
            self.max_num_seqs, MAX_MODEL_LEN, self.options.history_rows, model.vocab_size,
            model.mask_token_id, model.vocab_size, torch.device("cpu"),
        )  # fmt: skip
        forbidden = torch.zeros(model.vocab_size, dtype=torch.bool)
        forbidden[model.mask_token_id] = True
        forbidden[VALID_TOKENS:] = True
        self.limits = StepLimits(forbidden, self.options.window, False, 64)

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
        self.state.add(
            slot.number,
            data.prefill_token_ids,
            data.prompt_len,
            min(params.max_tokens, MAX_MODEL_LEN - data.prompt_len),
            options,
            (params.extra_args or {}).get(RESUME_NFE_KEY, 0),
            data.prompt_len % options.block_length if self.grid_from_zero else 0,
        )

    def _step(self, scheduled: dict[str, int]) -> dict[str, list[int]]:
        batch = [self.slots[name] for name in scheduled]
        numbers = torch.tensor([slot.number for slot in batch])
        first = torch.tensor([slot.computed for slot in batch])
        lengths = torch.tensor(list(scheduled.values()))
        tokens = flatten(numbers, first, lengths, int(lengths.sum()))
        policy, every = self.options.kv_cache, self.options.refresh_interval
        expected = expected_spans(self.state, numbers, first, policy, self.options.window, every)
        rows = select_rows(self.state, tokens, expected)
        logits = [
            self._forward(slot, b, int(lengths[b]), int(expected.extent[b]), rows, tokens.starts)
            for b, slot in enumerate(batch)
        ]
        committed = decode(self.state, numbers, rows, torch.cat(logits), self.limits)
        following = next_first(self.state, numbers, first + lengths, expected, policy, every)
        for slot, computed in zip(batch, following.tolist(), strict=True):
            slot.computed = computed
        return {
            name: row[:count]
            for name, row, count in zip(
                scheduled, committed.tokens.tolist(), committed.lengths.tolist(), strict=True
            )
        }

    def _forward(
        self, slot: Slot, b: int, length: int, extent: int, rows: StepRows, starts: Tensor
    ) -> Tensor:
        state, first = self.state, slot.computed
        embeds = slot.model.embed(state.tokens[slot.number, first : first + length]).clone()
        row0 = slot.number * state.history_rows
        for row in range(row0, row0 + state.history_rows):
            at = slot.prompt_len + int(state.owner[row]) - first
            if state.mixed[row] and at < length:
                embeds[at] = mixed_embedding(
                    state.candidate_ids[row : row + 1],
                    state.candidate_weights[row : row + 1],
                    state.options.beta_mix[slot.number : slot.number + 1],
                    slot.model.embedding[state.mask_token_id],
                    slot.model.embedding,
                    0,
                    lambda partial: partial,
                )[0]
        end = first + length
        if self.options.kv_cache == "block":
            size = self.options.window
            extents = [min((i // size + 1) * size, end) for i in range(first, end)]
        else:
            extents = [extent if bool(rows.live[b]) else end] * length
        logits = self.cache.forward(slot.model, slot.pages, first, embeds, extents)
        return logits[rows.token_index[rows.batch == b] - starts[b]]


class MockEngine:
    """Scheduler and worker in lockstep, or with one step in flight as under asynchronous
    scheduling."""

    def __init__(self, vllm_config: Any, num_pages: int, page_size: int) -> None:
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        from remix_vllm.engine.options import engine_options
        from remix_vllm.engine.scheduler_choice import make_scheduler
        from remix_vllm.families import family_of

        vllm_config.cache_config.num_gpu_blocks = num_pages
        spec = FullAttentionSpec(
            block_size=page_size, num_kv_heads=1, head_size=1, dtype=torch.float32
        )
        self.scheduler: Any = make_scheduler(
            vllm_config=vllm_config,
            kv_cache_config=KVCacheConfig(num_pages, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=StructuredOutputManager(vllm_config),
            block_size=page_size,
            log_stats=False,
        )
        init_none_hash(sha256)
        self.hasher = get_request_block_hasher(page_size, sha256)
        self.asynchronous = vllm_config.scheduler_config.async_scheduling
        self.models: dict[str, ToyModel] = {}
        family = family_of(vllm_config.model_config.architectures)
        self.worker = MockWorker(
            engine_options(vllm_config),
            self.models,
            family.block_grid == "zero",
            PagedToy(num_pages, page_size, ToyModel(0).embedding.shape[1]),
            vllm_config.scheduler_config.max_num_seqs,
        )
        self.requests: dict[str, Any] = {}
        self.outputs: dict[str, list[int]] = {}
        self.in_flight: deque[tuple[Any, dict[str, list[int]]]] = deque()

    def add(
        self,
        name: str,
        model: ToyModel,
        prompt: list[int],
        max_tokens: int,
        options: dict[str, Any],
    ) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(max_tokens=max_tokens, temperature=0, extra_args=dict(options))
        self.models[name] = model
        request = Request(name, prompt, params, None, block_hasher=self.hasher)
        self.requests[name] = request
        self.outputs[name] = []
        self.scheduler.add_request(request)

    def abort(self, name: str) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    @property
    def busy(self) -> bool:
        return bool(self.in_flight) or self.scheduler.has_requests()

    def step(self) -> Any:
        """One call of the scheduler; returns its output."""
        output = self.scheduler.schedule()
        if self.asynchronous and self.in_flight:
            self._update()
        self.in_flight.append((output, self.worker.execute(output)))
        if not self.asynchronous or not output.num_scheduled_tokens:
            while self.in_flight:
                self._update()
        return output

    def _update(self) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        output, returned = self.in_flight.popleft()
        names = list(output.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[list(returned[name]) for name in names],
        )
        for outputs in self.scheduler.update_from_output(output, result).values():
            for item in outputs.outputs:
                self.outputs[item.request_id] += item.new_token_ids

    def nfe(self, name: str) -> int:
        return sum(self.requests[name].spec_decode_metrics.histogram)


def mock_config(model: Path, settings: dict[str, Any], **arguments: Any) -> Any:
    """vLLM's configuration for a checkpoint's config, as an engine would have it."""
    from vllm import EngineArgs

    engine = {"max_num_seqs": 4, "max_num_batched_tokens": MAX_MODEL_LEN} | arguments
    return EngineArgs(
        model=str(model),
        dtype="float32",
        max_model_len=MAX_MODEL_LEN,
        skip_tokenizer_init=True,
        enforce_eager=True,
        additional_config={"remix": settings},
        **engine,
    ).create_engine_config()
