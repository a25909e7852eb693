"""What the scheduler knows of one running request: how far it is, and how many forwards it took."""

from collections import deque
from dataclasses import replace
from typing import NamedTuple

from vllm.v1.metrics.stats import RequestSpecDecodeMetrics
from vllm.v1.request import Request

from remix_vllm.config import EngineOptions, RequestOptions
from remix_vllm.decoding.geometry import Geometry, Span


class Forward(NamedTuple):
    """A denoising step of one request that has returned."""

    positions: int
    """Positions of the active block that were not returned before it."""
    tokens: int
    """Tokens it returned."""
    refreshes: bool
    """Whether it computed the whole sequence under a policy that does not always."""
    blocks: int
    """Blocks whose last token it returned."""


class Progress:
    """Position and forward count of one request.

    The count is kept in vLLM's own per-request record, ``RequestSpecDecodeMetrics``: one
    observation per denoising forward, so ``num_spec_steps`` is the NFE and
    ``num_accepted_draft_tokens`` the tokens returned. It is what
    ``RequestOutput.outputs[0].spec_decode_metrics`` and the API's ``metrics.speculative_decoding``
    show.
    """

    def __init__(
        self, request: Request, engine: EngineOptions, grid_from_zero: bool, max_model_len: int
    ) -> None:
        params = request.sampling_params
        assert params is not None
        options: RequestOptions = engine.request_options(params.extra_args)
        prompt_len = request.num_prompt_tokens
        self.geometry = Geometry(
            policy=engine.kv_cache,
            prompt_len=prompt_len,
            region_len=min(request.max_tokens, max_model_len - prompt_len),
            block_length=options.block_length,
            window=engine.window,
            grid_offset=prompt_len % options.block_length if grid_from_zero else 0,
            refresh_interval=engine.refresh_interval,
        )
        self._whole_region = options.needs_whole_region
        longest = self.geometry.region_len if self._whole_region else options.block_length
        self.metrics = RequestSpecDecodeMetrics.new(longest)
        self._at_block_start = _copied(self.metrics)
        self.block_start = self.geometry.block_start(0)
        self._steps = 0
        self._under_way: deque[Span] = deque()

    @property
    def nfe(self) -> int:
        return sum(self.metrics.histogram)

    @property
    def final_positions(self) -> int:
        """Absolute positions before the active block."""
        return self.geometry.prompt_len + self.block_start

    def next_span(self, computed: int) -> Span:
        """Span of the next denoising step if those under way leave the active block open.

        Args:
            computed: positions whose K/V were final before the steps under way. One planned for a
                block that is now done computes the K/V of its decided tokens: the final ones.
        """
        for span in self._under_way:
            computed = max(computed, min(span.end, self.final_positions))
        return self.geometry.span(self.block_start, self._next_step(), computed)

    def plan(self, span: Span) -> None:
        """A step over ``span`` is under way."""
        self._under_way.append(span)

    def _next_step(self) -> int:
        step = self._steps
        for span in self._under_way:
            step += self.geometry.denoises(span, self.block_start, step)
        return step

    def observe(self, returned_before: int, returned_now: int) -> Forward | None:
        """The oldest step under way has returned ``returned_now`` tokens after ``returned_before``.

        One that the worker left alone, or that computed a part of the prompt, does not count: None.
        """
        span = self._under_way.popleft()
        geometry = self.geometry
        if not geometry.denoises(span, self.block_start, self._steps):
            return None
        positions = geometry.block_end(geometry.block_start(returned_before)) - returned_before
        refreshes = geometry.policy in ("prefix", "dual") and geometry.refreshes(self._steps)
        self.metrics.observe(num_draft_tokens=positions, num_accepted=returned_now)
        self._steps += 1
        if not returned_now:
            return Forward(positions, 0, refreshes, 0)
        returned = returned_before + returned_now
        blocks = geometry.blocks_done(returned) - geometry.blocks_done(returned_before)
        start = geometry.block_start(returned)
        if start != self.block_start and not self._whole_region:
            self.block_start, self._steps = start, 0
            self._at_block_start = _copied(self.metrics)
        return Forward(positions, returned_now, refreshes, blocks)

    def restart_block(self) -> None:
        """Forget the forwards of the active block, which a preempted request does again."""
        self.metrics = _copied(self._at_block_start)
        self._steps = 0
        self._under_way.clear()


def _copied(metrics: RequestSpecDecodeMetrics) -> RequestSpecDecodeMetrics:
    # Steps are not recorded in detail: the histogram is the only list that grows or changes.
    return replace(metrics, histogram=metrics.histogram.copy())
