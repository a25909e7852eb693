"""Scheduler of denoising steps, on vLLM's own scheduler.

vLLM's scheduler lets ``num_computed_tokens`` catch up with a request's tokens. Here a step computes
one span of positions (:mod:`remix_vllm.decoding.geometry`), all or nothing, and
``num_computed_tokens`` is where the next span begins. What is relied on in vLLM 0.32:

* ``_mamba_block_aligned_split`` is called for every candidate in the running and in the waiting
  loop when ``need_mamba_block_aligned_split`` is set, before KV pages are allocated for
  ``num_computed_tokens`` and the number it returns; that number is scheduled, and 0 defers the
  request.
* ``num_sampled_tokens_per_step`` is 0 for a diffusion model, so no step reserves a position for an
  autoregressive token; with ``num_spec_tokens`` 0 no draft tokens travel either.
* ``allocate_slots`` hashes no page beyond a request's known tokens. A page holds whole blocks, so a
  page that is hashed holds decided tokens only, and the step it is hashed in computes their final
  K/V.

Invariant: outside ``schedule`` no K/V at or after a running request's ``num_computed_tokens`` is
ever read by a later step without being written by it, but those that ``prefix`` and ``dual`` keep
on purpose.
"""

import logging
from typing import Any

from vllm.platforms import current_platform
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus

from remix_vllm.config import RESUME_NFE_KEY
from remix_vllm.decoding.geometry import Span
from remix_vllm.engine.decoding_stats import DecodingStats
from remix_vllm.engine.options import engine_options
from remix_vllm.engine.progress import Progress
from remix_vllm.engine.step_counts import take_counts
from remix_vllm.families import family_of

logger = logging.getLogger("vllm.remix_vllm.scheduler")

COMPLETED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


class ReMixScheduler(Scheduler):
    """Plans which span a request computes in a step: all of it, or none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.need_mamba_block_aligned_split = True
        self.options = engine_options(self.vllm_config)
        family = family_of(self.vllm_config.model_config.architectures)
        self._grid_from_zero = family.block_grid == "zero"
        self.progress: dict[str, Progress] = {}
        self.decoding_stats = DecodingStats()
        self._spoiled_pages: set[int] = set()
        self._budget = 0
        self._check_pages()

    def _check_pages(self) -> None:
        """Not in the configuration hook: the platform chooses the page size after it.

        Raises:
            ValueError: a page could be hashed while a block in it is still being denoised.
        """
        length = self.options.window
        caches = self.options.kv_cache == "block" and self.cache_config.enable_prefix_caching
        if caches and self.block_size % length:
            raise ValueError(
                f"block_size={self.block_size}: with prefix caching a page of the KV cache must "
                f"hold whole diffusion blocks; allowed are multiples of {length}, or "
                f"enable_prefix_caching=False"
            )

    def add_request(self, request: Request) -> None:
        super().add_request(request)
        progress = Progress(request, self.options, self._grid_from_zero, self.max_model_len)
        self.progress[request.request_id] = progress
        request.spec_decode_metrics = progress.metrics

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        # A lower bound of the budget the loops of the base class have left: what they grant is
        # subtracted here too, what they take back after a preemption is not added again.
        self._budget = self.max_num_scheduled_tokens
        clean = self._pages_to_clean()
        output = super().schedule(throttle_prefills)
        # Done by the worker before anything of this step, and after the last step that could write
        # to them.
        output.new_block_ids_to_zero = clean or None
        return output

    def _pages_to_clean(self) -> list[int]:
        """Pages of failed requests that nobody holds any more; they may go to others now."""
        blocks = self.kv_cache_manager.block_pool.blocks
        free = [page for page in self._spoiled_pages if blocks[page].ref_cnt == 0]
        self._spoiled_pages.difference_update(free)
        return free

    def _mamba_block_aligned_split(
        self,
        request: Request,
        num_new_tokens: int,
        num_new_local_computed_tokens: int = 0,
        num_external_computed_tokens: int = 0,
    ) -> int:
        progress = self.progress[request.request_id]
        if request.status == RequestStatus.PREEMPTED:
            self._resume(request, progress)
        computed = request.num_computed_tokens + num_new_local_computed_tokens
        first, end = progress.next_span(computed)
        if end - first > self._budget and self.options.kv_cache == "block":
            # A long prompt is computed in parts of whole blocks.
            length = progress.geometry.block_length
            end = min(progress.final_positions, first + self._budget // length * length)
        if not 0 < end - first <= self._budget:
            return 0
        if request.status == RequestStatus.RUNNING:
            # Pages are allocated from here on. A waiting request begins where its cached pages end.
            request.num_computed_tokens = first
        self._budget -= end - first
        return end - first

    def _update_after_schedule(self, scheduler_output: SchedulerOutput) -> None:
        super()._update_after_schedule(scheduler_output)
        keeps_final = self.options.kv_cache == "block"
        for request_id, length in scheduler_output.num_scheduled_tokens.items():
            request, progress = self.requests[request_id], self.progress[request_id]
            end = request.num_computed_tokens
            progress.plan(Span(end - length, end))
            final = min(end, progress.final_positions) if keeps_final else 0
            request.num_computed_tokens = final

    def update_from_output(
        self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput
    ) -> dict[int, EngineCoreOutputs]:
        counts = take_counts(model_runner_output)
        index_of = model_runner_output.req_id_to_index
        sampled = model_runner_output.sampled_token_ids
        for request_id in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(request_id)
            if request is None or request.is_finished():
                continue
            if request.num_stale_output_tokens and request.drop_stale_output:
                continue
            index = index_of[request_id]
            progress = self.progress[request_id]
            forward = progress.observe(request.num_output_tokens, len(sampled[index]))
            if forward is not None:
                self.decoding_stats.add_forward(forward)
            if counts is not None:
                self.decoding_stats.add_counts(counts, index)
                if counts.corrupt[index]:
                    self._fail(request_id, counts.corrupt[index])
        return super().update_from_output(scheduler_output, model_runner_output)

    def _fail(self, request_id: str, corrupt: int) -> None:
        """End a request with an error once the step's output is dealt with."""
        logger.error(
            "Request %s ends with an error: %d rows of its logits hold no distribution (NaN, "
            "infinity, or nothing finite). Requests beside it are not affected",
            request_id,
            corrupt,
        )
        pages = {
            page for group in self.kv_cache_manager.get_block_ids(request_id) for page in group
        }
        self.kv_cache_manager.evict_blocks(pages)
        if current_platform.is_cpu():
            # Other attention kernels do not read what a page holds after a sequence's end.
            self._spoiled_pages |= pages
        # The base class ends the requests of this set before it makes the statistics of the step,
        # and tells their clients.
        self.grammar_compile_error_reqs.add(request_id)

    def make_stats(
        self, spec_decoding_stats: Any = None, *args: Any, **kwargs: Any
    ) -> SchedulerStats | None:
        # Without draft tokens the base class has none of its own.
        stats, self.decoding_stats = self.decoding_stats, DecodingStats()
        return super().make_stats(stats.pack(), *args, **kwargs)

    def _preempt_request(
        self, request: Request, timestamp: float, drop_stale_output: bool = False
    ) -> None:
        super()._preempt_request(request, timestamp, drop_stale_output)
        if request.drop_stale_output:
            self.progress[request.request_id].restart_block()

    def _resume(self, request: Request, progress: Progress) -> None:
        """Start the active block again. Not at preemption: with asynchronous scheduling a step may
        be under way then, whose tokens are still delivered before vLLM lets the request back in."""
        progress.restart_block()
        request.spec_decode_metrics = progress.metrics
        params = request.sampling_params
        assert params is not None
        params.extra_args = {**(params.extra_args or {}), RESUME_NFE_KEY: progress.nfe}

    def _free_request(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        progress = self.progress.pop(request.request_id)
        if request.status in COMPLETED:
            self.decoding_stats.finished.append((progress.nfe, request.num_output_tokens))
        return super()._free_request(request, *args, **kwargs)


class ReMixAsyncScheduler(ReMixScheduler, AsyncScheduler):
    """The same, planning a step before the one before it has returned.

    What has been returned changes a span only when the active block changes; a step planned for a
    block that is already done is left alone by the worker.
    """

    def _update_request_with_output(
        self, request: Request, new_token_ids: list[int], is_stale: bool = False
    ) -> tuple[list[int], bool]:
        # AsyncScheduler counts placeholders of sampled and draft tokens, of which there are none
        # here.
        return Scheduler._update_request_with_output(self, request, new_token_ids, is_stale)
