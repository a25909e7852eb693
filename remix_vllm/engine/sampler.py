"""Sampler of the diffusion runner: a step's logits become decided and returned tokens."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.sample.output import SamplerOutput

from remix_vllm.decoding.geometry import next_first
from remix_vllm.decoding.step import decode
from remix_vllm.engine.step_counts import StepCountsTensor
from remix_vllm.ops.candidates import top_candidates
from remix_vllm.ops.row_passes import Compared
from remix_vllm_patches import kept_memory, page_zeroing

if TYPE_CHECKING:
    from remix_vllm.engine.model_state import ReMixModelState


class ReMixSampler:
    """Stands in for vLLM's ``Sampler``; has the attributes that Model Runner V2 reads from it."""

    compute_nans = False
    # `postprocess_sampled` passes this to the kernel that counts tokens for penalties.
    penalties_state = SimpleNamespace(output_bin_counts=None)

    def __init__(self, state: "ReMixModelState", base: Any) -> None:
        self.state = state
        self.req_states = base.req_states
        kept_memory.apply()
        page_zeroing.apply()

    def add_request(self, req_idx: int, sampling_params: Any) -> None:
        """Options are read in ``ReMixModelState.add_request``, with the prompt."""

    def apply_staged_writes(self) -> None:
        """Nothing is staged."""

    def __call__(self, logits: Tensor, input_batch: InputBatch) -> SamplerOutput:
        step = self.state.finish_step()
        if step is None:
            return self._profile(logits, input_batch)
        end = step.tokens.first + step.tokens.lengths
        committed = decode(self.state.canvas, step.before, step.rows, logits, self.state.limits)
        if self.state.bounds is not None:
            reported = input_batch.idx_mapping_np[: input_batch.num_reqs]
            self.state.bounds.report(reported, committed.undecided)
        tokens = committed.tokens
        if tokens.device.type == "cpu":
            # The rows become Python lists: no longer than needed where knowing costs nothing.
            tokens = tokens[:, : int(committed.lengths.max())]
        options = self.state.options
        first = next_first(
            committed.after, end, step.expected, options.kv_cache, options.refresh_interval
        )
        return SamplerOutput(
            sampled_token_ids=tokens.to(torch.int32),
            # Greedy decoding has no logprobs; the field carries the counts to the scheduler.
            logprobs_tensors=StepCountsTensor(committed.counts),
            num_nans=None,
            num_sampled=committed.lengths.to(torch.int32),
            # The runner adds a step's length to its count of computed tokens and subtracts this.
            num_rejected=(end - first).to(torch.int32),
        )

    def _profile(self, logits: Tensor, input_batch: InputBatch) -> SamplerOutput:
        """Let vLLM's memory profiling see the largest temporaries of a step.

        It brings a row of logits per request; a step has as many as there are positions to mix.
        """
        canvas = self.state.canvas
        most = min(len(canvas.mixed) - 1, self.state.max_num_tokens)
        if logits.device.type != "cpu":
            logits = logits[torch.arange(most, device=logits.device) % len(logits)]
        scan = self.state.limits.passes.scan(logits)
        at = torch.arange(min(most, len(logits)), device=logits.device)
        candidates = top_candidates(logits, scan, at, canvas.top_k)
        # No request is running: what is written here is nobody's.
        every = torch.ones_like(at, dtype=torch.bool)
        compared = Compared(at, at, every, every, scan.confidence)
        canvas.history.replace(logits, scan, candidates, compared)
        zeros = torch.zeros(input_batch.num_reqs, dtype=torch.int32, device=logits.device)
        return SamplerOutput(
            sampled_token_ids=zeros[:, None],
            logprobs_tensors=None,
            num_nans=None,
            num_sampled=zeros,
            num_rejected=zeros,
        )
