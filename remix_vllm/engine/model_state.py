"""Model state of the diffusion runner: fills a step's input embeddings from the canvas state.

vLLM's Model Runner V2 owns the batch and calls the hooks of its ``ModelState`` interface
(``vllm/v1/worker/gpu/model_states/interface.py``). A request has no draft tokens here: a step is
one span of its sequence (:mod:`remix_vllm.decoding.geometry`), whose logits rows are chosen in
:meth:`ReMixModelState.preprocess_state`, and the sampler returns as many tokens as have become
final.

Invariant: between :meth:`ReMixModelState.add_request` and the slot's next use only the sampler
writes the canvas state.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.distributed import tensor_model_parallel_all_reduce
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.model_states.interface import ModelState
from vllm.v1.worker.gpu.states import RequestState

from remix_vllm.config import RESUME_NFE_KEY
from remix_vllm.decoding.geometry import ExpectedSpans, expected_spans
from remix_vllm.decoding.rows import StepRows, StepTokens, flatten, indices_of, select_rows
from remix_vllm.decoding.state import TOP_K, CanvasState, SlotState
from remix_vllm.decoding.step import StepLimits
from remix_vllm.engine.attention import block_rows, metadata, whole_rows
from remix_vllm.engine.fingerprint import check_fingerprint
from remix_vllm.engine.options import engine_options
from remix_vllm.engine.row_bounds import RowBounds
from remix_vllm.engine.sampler import ReMixSampler
from remix_vllm.engine.statistics import make_history, row_passes
from remix_vllm.engine.vocabulary import forbidden_ids, mask_token_id
from remix_vllm.families import family_of
from remix_vllm.ops.mixed_embedding import mixed_embedding


class Step(NamedTuple):
    """The step under way."""

    before: SlotState
    tokens: StepTokens
    expected: ExpectedSpans
    rows: StepRows


class ReMixModelState(ModelState):
    """Canvas state of every slot, and the inputs made from it."""

    num_new_sampled_tokens_per_step = 0

    def __init__(
        self,
        vllm_config: VllmConfig,
        model: nn.Module,
        encoder_cache: Any,
        device: torch.device,
    ) -> None:
        super().__init__(vllm_config, model, encoder_cache, device)
        check_fingerprint(vllm_config)
        self.options = engine_options(vllm_config)
        family = family_of(self.model_config.architectures)
        self._grid_from_zero = family.block_grid == "zero"
        vocab_size = self.model_config.get_vocab_size()
        self.mask_token_id = mask_token_id(vllm_config)
        passes = row_passes(vllm_config, self.options.statistics_rows, device)
        self.canvas = CanvasState(
            num_slots=self.max_num_reqs,
            history=make_history(vllm_config, self.options, passes, device),
            max_model_len=self.max_model_len,
            history_rows=self.options.history_rows,
            vocab_size=vocab_size,
            mask_token_id=self.mask_token_id,
            top_k=min(TOP_K, vocab_size),
            device=device,
        )
        self.limits = StepLimits(
            forbidden=forbidden_ids(vllm_config, self.mask_token_id).to(device),
            window=self.options.window,
            whole_blocks=self.options.stream == "block",
            passes=passes,
        )
        # Fixed address: a captured graph reads it. The last row takes what belongs nowhere.
        self.inputs_embeds = torch.zeros(
            self.max_num_tokens + 1, self.inputs_embeds_size, dtype=self.dtype, device=device
        )
        self.bounds: RowBounds | None = None
        if device.type != "cpu":
            in_flight = vllm_config.max_concurrent_batches - 1
            self.bounds = RowBounds(self.max_num_reqs, self.options.window, in_flight)
        self.slots: dict[str, int] = {}
        self.step: Step | None = None

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        return ReMixSampler(self, sampler), None

    def add_request(self, req_index: int, new_req_data: NewRequestData) -> None:
        params = new_req_data.sampling_params
        assert params is not None and params.max_tokens is not None
        assert new_req_data.prefill_token_ids is not None
        extra = params.extra_args or {}
        prompt_len = new_req_data.prompt_len
        options = self.options.request_options(extra)
        region_len = min(params.max_tokens, self.max_model_len - prompt_len)
        self.slots[new_req_data.req_id] = req_index
        if self.bounds is not None:
            self.bounds.add(req_index, options, region_len)
        self.canvas.add(
            slot=req_index,
            token_ids=new_req_data.prefill_token_ids,
            prompt_len=prompt_len,
            region_len=region_len,
            options=options,
            nfe=extra.get(RESUME_NFE_KEY, 0),
            grid_offset=prompt_len % options.block_length if self._grid_from_zero else 0,
        )

    def remove_request(self, req_id: str) -> None:
        slot = self.slots.pop(req_id, None)
        if slot is not None:
            self.canvas.forget(slot)

    def prepare_inputs_embeds(self, *args: Any, **kwargs: Any) -> None:
        """Not called: the runner asks for it only with multimodal or prompt-embedding inputs."""
        return None

    def preprocess_state(
        self,
        input_batch: InputBatch,
        block_tables: tuple[Tensor, ...],
        kv_cache_config: Any,
        num_computed_tokens: Tensor,
    ) -> None:
        """Lay out a real step; vLLM calls this before everything else that asks about it.

        Spans begin at the runner's own count of computed tokens, not the scheduler's: with
        asynchronous scheduling it knows one step more.
        """
        slots = input_batch.idx_mapping[: input_batch.num_reqs]
        first = num_computed_tokens[slots].to(torch.int64)
        lengths = input_batch.query_start_loc[: input_batch.num_reqs + 1].diff().to(torch.int64)
        tokens = flatten(self.canvas, slots, first, lengths, input_batch.num_tokens)
        before = self.canvas.read(slots)
        expected = expected_spans(
            before,
            first,
            self.options.kv_cache,
            self.options.window,
            self.options.refresh_interval,
        )
        counts, total = None, None
        if self.bounds is not None:
            on_host = self.bounds.counts(
                input_batch.idx_mapping_np[: input_batch.num_reqs],
                input_batch.num_scheduled_tokens,
            )
            counts, total = async_tensor_h2d(on_host, self.device), int(on_host.sum())
        rows = select_rows(self.canvas, before, tokens, expected, counts, total)
        self.step = Step(before, tokens, expected, rows)

    def prepare_inputs(self, input_batch: InputBatch, req_states: RequestState) -> dict[str, Any]:
        size = input_batch.num_tokens_after_padding
        if self.step is None:
            return self.prepare_dummy_inputs(input_batch.num_reqs, size)
        tokens = self.step.tokens
        # The runner reads the logits of these rows and no others.
        input_batch.logits_indices = self.step.rows.token_index
        ids = self.canvas.tokens.view(-1).index_select(0, tokens.flat)
        self._embed(ids, self.step.rows)
        return {"input_ids": None, "inputs_embeds": self.inputs_embeds[:size]}

    def finish_step(self) -> Step | None:
        """The step under way, which ends; None in a dummy run."""
        step, self.step = self.step, None
        return step

    def _embed(self, ids: Tensor, rows: StepRows) -> None:
        """Embed tokens ``[T]``, those in state C as their blends; one all-reduce for both."""
        table = self.model.model.embed_tokens
        shard = table.shard_indices
        first_id = shard.org_vocab_start_index
        weight = table.weight[: shard.num_org_elements]
        embeddings = self.inputs_embeds[: len(ids)]
        if table.tp_size == 1:
            torch.index_select(weight, 0, ids, out=embeddings)
        else:
            local = ids - first_id
            mine = (local >= 0) & (local < len(weight))
            torch.index_select(weight, 0, torch.where(mine, local, 0), out=embeddings)
            embeddings.masked_fill_(~mine[:, None], 0.0)

        canvas = self.canvas
        mixed = canvas.mixed.index_select(0, rows.place) & rows.wanted
        some = indices_of(mixed)
        if len(some):
            at, index = rows.place[some], rows.token_index[some]
            blends = mixed_embedding(
                canvas.candidate_ids.index_select(0, at),
                canvas.candidate_weights.index_select(0, at),
                canvas.options.columns.beta_mix[rows.slot[some]],
                self.mask_token_id,
                weight,
                first_id,
                self.limits.passes,
            ).to(self.dtype)
            if self.bounds is not None:
                # There are others among them, which keep what they have.
                blends = torch.where(mixed[some, None], blends, embeddings[index])
            embeddings.index_copy_(0, index, blends)
        if table.tp_size > 1:
            embeddings.copy_(tensor_model_parallel_all_reduce(embeddings))

    def prepare_dummy_inputs(self, num_reqs: int, num_tokens: int) -> dict[str, Any]:
        return {"input_ids": None, "inputs_embeds": self.inputs_embeds[:num_tokens]}

    def prepare_attn(
        self,
        input_batch: InputBatch,
        cudagraph_mode: CUDAGraphMode,
        block_tables: tuple[Tensor, ...],
        slot_mappings: Tensor,
        attn_groups: Any,
        kv_cache_config: Any,
        for_capture: bool = False,
        ubatch_idx: int = 0,
    ) -> dict[str, Any]:
        """Attention of the step under way, or of a dummy batch, whose requests are whole."""
        full = cudagraph_mode == CUDAGraphMode.FULL
        num_tokens = input_batch.num_tokens_after_padding if full else input_batch.num_tokens
        count = input_batch.num_reqs_after_padding if full else input_batch.num_reqs
        longest = self.max_model_len
        if not for_capture:
            longest = int(input_batch.seq_lens_cpu_upper_bound[: input_batch.num_reqs].max())
        if self.step is not None and self.options.kv_cache == "block":
            rows = block_rows(
                input_batch.num_computed_tokens_np,
                input_batch.num_scheduled_tokens,
                self.options.defaults.block_length,
                self.device,
            )
        elif self.step is not None and self.options.kv_cache == "dual":
            extent = torch.where(
                self.step.rows.live, self.step.expected.extent, input_batch.seq_lens
            )
            rows = whole_rows(input_batch, count, extent, self.max_model_len)
        else:
            rows = whole_rows(input_batch, count, None, longest)
        return metadata(
            rows, num_tokens, attn_groups, block_tables, slot_mappings, kv_cache_config, for_capture
        )
