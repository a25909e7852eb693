"""Scheduler of whole-sequence denoising steps, on vLLM's own scheduler.

vLLM's scheduler tries to let ``num_computed_tokens`` catch up with a request's tokens. Here it never
does: after each step it goes back to zero, and the next step schedules prompt, returned tokens and canvas
again, all or nothing. What is relied on in vLLM 0.32:

* ``_mamba_block_aligned_split`` is called for every candidate in the running and in the waiting loop when
  ``need_mamba_block_aligned_split`` is set; what it returns is scheduled, and 0 defers the request.
* ``num_sampled_tokens_per_step`` is 0 for a diffusion model, so no step reserves a position for an
  autoregressive token; with ``num_spec_tokens`` 0 no draft tokens travel either.

Invariant: outside ``schedule`` every running request has ``num_computed_tokens == 0``.
"""

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from remix_vllm.config import RESUME_NFE_KEY
from remix_vllm.engine.options import engine_options
from remix_vllm.engine.progress import Progress


class ReMixScheduler(Scheduler):
    """Plans which positions a request computes in a step: all of them, or none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.need_mamba_block_aligned_split = True
        self.options = engine_options(self.vllm_config)
        self.progress: dict[str, Progress] = {}
        self._budget = 0

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        progress = Progress(request, self.options, self.max_model_len)
        self.progress[request.request_id] = progress
        request.spec_decode_metrics = progress.metrics

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        # A lower bound of the budget the loops of the base class have left: what they grant is
        # subtracted here too, what they take back after a preemption is not added again.
        self._budget = self.max_num_scheduled_tokens
        return super().schedule(throttle_prefills)

    def _mamba_block_aligned_split(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_local_computed_tokens: int = 0,
        num_external_computed_tokens: int = 0,
    ) -> int:
        length = self.progress[request.request_id].sequence_len(request.num_output_tokens)
        if length > self._budget:
            return 0
        self._budget -= length
        return length

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        for request_id in scheduler_output.num_scheduled_tokens:
            self.requests[request_id].num_computed_tokens = 0

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        for request_id, length in scheduler_output.num_scheduled_tokens.items():
            request = self.requests.get(request_id)
            if request is None or request.is_finished() or request.num_stale_output_tokens:
                continue
            self._observe(request, length, model_runner_output)
        return super().update_from_output(scheduler_output, model_runner_output)

    def _observe(self, request: Request, length: int, output: ModelRunnerOutput) -> None:
        progress = self.progress[request.request_id]
        returned = request.num_output_tokens
        if length != progress.sequence_len(returned):
            # Planned before the last block was known to be done: the worker left it alone.
            return
        index = output.req_id_to_index[request.request_id]
        tokens = len(output.sampled_token_ids[index])
        progress.observe(length - progress.prompt_len - returned, returned, tokens)

    def _preempt_request(
        self, request: Request, timestamp: float, drop_stale_output: bool = False
    ) -> None:
        super()._preempt_request(request, timestamp, drop_stale_output)
        progress = self.progress[request.request_id]
        nfe = progress.restart_block()
        request.spec_decode_metrics = progress.metrics
        params = request.sampling_params
        assert params is not None
        params.extra_args = {**(params.extra_args or {}), RESUME_NFE_KEY: nfe}

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        self.progress.pop(request.request_id, None)
        return super()._free_request(request, *args, **kwargs)


class ReMixAsyncScheduler(ReMixScheduler, AsyncScheduler):
    """The same, planning a step before the one before it has returned.

    A step's length depends on what has been returned only when the active block changes and the
    generation exceeds the window; a step planned too short is left alone by the worker.
    """

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        # AsyncScheduler counts placeholders of sampled and draft tokens, of which there are none here.
        return Scheduler._update_request_with_output(self, request, new_token_ids, is_stale)
