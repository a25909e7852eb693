"""Model state of the diffusion runner: fills a step's input embeddings from the canvas state.

vLLM's Model Runner V2 owns the batch and calls the hooks of its ``ModelState`` interface
(``vllm/v1/worker/gpu/model_states/interface.py``). A request has no draft tokens here: each step is a
whole sequence with no token computed before (``kv_cache: none``), its logits rows are chosen in
:meth:`ReMixModelState.prepare_inputs`, and the sampler returns as many tokens as have become final.

Invariant: between :meth:`add_request` and the slot's next use only the sampler writes the canvas state.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.config.compilation import CUDAGraphMode
from vllm.distributed import tensor_model_parallel_all_reduce
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.worker.gpu.attn_utils import build_attn_metadata
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.model_states.interface import ModelState
from vllm.v1.worker.gpu.states import RequestState

from remix_vllm.config import RESUME_NFE_KEY
from remix_vllm.decoding.rows import StepRows, StepTokens, flatten, select_rows
from remix_vllm.decoding.state import CanvasState
from remix_vllm.decoding.step import StepLimits
from remix_vllm.engine.options import engine_options
from remix_vllm.engine.sampler import ReMixSampler
from remix_vllm.engine.vocabulary import forbidden_mask, mask_token_id
from remix_vllm.ops.mixed_embedding import mixed_embedding


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
        self.options = engine_options(vllm_config)
        vocab_size = self.model_config.get_vocab_size()
        self.mask_token_id = mask_token_id(vllm_config)
        self.canvas = CanvasState(
            num_slots=self.max_num_reqs,
            max_model_len=self.max_model_len,
            history_rows=self.options.history_rows,
            vocab_size=vocab_size,
            mask_token_id=self.mask_token_id,
            top_k=min(50, vocab_size),
            device=device,
        )
        self.limits = StepLimits(
            forbidden=forbidden_mask(vllm_config, self.mask_token_id).to(device),
            window=self.options.window,
            whole_blocks=self.options.stream == "block",
            statistics_rows=self.options.statistics_rows,
        )
        # Fixed address: a captured graph reads it.
        self.inputs_embeds = torch.zeros(
            self.max_num_tokens, self.inputs_embeds_size, dtype=self.dtype, device=device
        )
        self.slots: dict[str, int] = {}
        self.step_rows: StepRows | None = None

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        return ReMixSampler(self, sampler), None

    def add_request(self, req_index: int, new_req_data: NewRequestData) -> None:
        params = new_req_data.sampling_params
        assert params is not None and params.max_tokens is not None
        assert new_req_data.prefill_token_ids is not None
        extra = params.extra_args or {}
        prompt_len = new_req_data.prompt_len
        self.slots[new_req_data.req_id] = req_index
        self.canvas.add(
            slot=req_index,
            token_ids=new_req_data.prefill_token_ids,
            prompt_len=prompt_len,
            region_len=min(params.max_tokens, self.max_model_len - prompt_len),
            options=self.options.request_options(extra),
            nfe=extra.get(RESUME_NFE_KEY, 0),
        )

    def remove_request(self, req_id: str) -> None:
        slot = self.slots.pop(req_id, None)
        if slot is not None:
            self.canvas.forget(slot)

    def prepare_inputs_embeds(self, *args: Any, **kwargs: Any) -> None:
        """Not called: the runner asks for it only with multimodal or prompt-embedding inputs."""
        return None

    def prepare_inputs(self, input_batch: InputBatch, req_states: RequestState) -> dict[str, Any]:
        size = input_batch.num_tokens_after_padding
        if input_batch.req_ids[0] not in self.slots:
            # A dummy batch (profiling, warm-up): its slots are nobody's.
            self.step_rows = None
            return self.prepare_dummy_inputs(input_batch.num_reqs, size)
        count = input_batch.num_reqs
        slots = input_batch.idx_mapping[:count]
        lengths = torch.from_numpy(input_batch.num_scheduled_tokens.astype(np.int64))
        tokens = flatten(slots, lengths.to(self.device), input_batch.num_tokens)
        self.step_rows = select_rows(self.canvas, tokens, self.options.window)
        # The runner reads the logits of these rows and no others.
        input_batch.logits_indices = self.step_rows.token_index
        ids = self.canvas.tokens[slots[tokens.batch], tokens.position]
        self.inputs_embeds[: input_batch.num_tokens] = self.model.embed_input_ids(ids)
        self._mix(tokens)
        return {"input_ids": None, "inputs_embeds": self.inputs_embeds[:size]}

    def _mix(self, tokens: StepTokens) -> None:
        """Put the mixed embeddings of the positions in state C over their mask embeddings."""
        canvas = self.canvas
        mixed = canvas.mixed.view(self.max_num_reqs, canvas.history_rows)[tokens.slots]
        batch, column = mixed.nonzero(as_tuple=True)
        if not len(batch):
            return
        slot = tokens.slots[batch]
        row = slot * canvas.history_rows + column
        index = tokens.starts[batch] + canvas.prompt_len[slot] + canvas.owner[row]
        table = self.model.model.embed_tokens
        shard = table.shard_indices
        embeddings = mixed_embedding(
            canvas.candidate_ids[row],
            canvas.candidate_weights[row],
            canvas.options.beta_mix[slot],
            self.model.embed_input_ids(slot.new_tensor([self.mask_token_id]))[0],
            table.weight[: shard.num_org_elements],
            shard.org_vocab_start_index,
            tensor_model_parallel_all_reduce,
        )
        self.inputs_embeds[index] = embeddings.to(self.dtype)

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
        """Bidirectional attention of every request over its whole sequence."""
        full = cudagraph_mode == CUDAGraphMode.FULL
        num_reqs = input_batch.num_reqs_after_padding if full else input_batch.num_reqs
        num_tokens = input_batch.num_tokens_after_padding if full else input_batch.num_tokens
        upper_bound = input_batch.seq_lens_cpu_upper_bound
        longest = self.max_model_len if for_capture else int(upper_bound[:num_reqs].max())
        return build_attn_metadata(
            attn_groups=attn_groups,
            num_reqs=num_reqs,
            num_tokens=num_tokens,
            query_start_loc_gpu=input_batch.query_start_loc[: num_reqs + 1],
            query_start_loc_cpu=torch.from_numpy(input_batch.query_start_loc_np[: num_reqs + 1]),
            max_query_len=int(input_batch.num_scheduled_tokens.max()),
            seq_lens=input_batch.seq_lens,
            max_seq_len=longest,
            block_tables=block_tables,
            slot_mappings=slot_mappings,
            kv_cache_config=kv_cache_config,
            seq_lens_cpu_upper_bound=upper_bound,
            for_cudagraph_capture=for_capture,
            causal=False,
        )
