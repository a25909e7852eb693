"""The real scheduler in lockstep with a worker that has no vLLM in it."""

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tests.models.mock_worker import MAX_MODEL_LEN, MockWorker
from tests.models.toy import ToyModel
from tests.models.toy_attention import PagedToy

if TYPE_CHECKING:
    from remix_vllm.engine.decoding_stats import DecodingStats


class MockEngine:
    """Scheduler and worker in lockstep, or with one step in flight as under asynchronous
    scheduling."""

    def __init__(
        self, vllm_config: Any, num_pages: int, page_size: int, row_bounds: bool = False
    ) -> None:
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
            log_stats=True,
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
            int(self.asynchronous) if row_bounds else None,
        )
        self.requests: dict[str, Any] = {}
        self.outputs: dict[str, list[int]] = {}
        self.finish_reasons: dict[str, str] = {}
        self.reports: list[DecodingStats] = []
        """What the scheduler told the metrics."""
        self.in_flight: deque[tuple[Any, dict[str, list[int]], Any]] = deque()

    def add(
        self,
        name: str,
        model: ToyModel,
        prompt: list[int],
        max_tokens: int,
        options: dict[str, Any],
        *,
        stop_token_ids: tuple[int, ...] = (),
        priority: int = 0,
    ) -> None:
        from vllm import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=0,
            extra_args=dict(options),
            stop_token_ids=list(stop_token_ids),
        )
        self.models[name] = model
        request = Request(name, prompt, params, None, block_hasher=self.hasher, priority=priority)
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
        returned = self.worker.execute(output)
        self.in_flight.append((output, returned, self.worker.counts))
        if not self.asynchronous or not output.num_scheduled_tokens:
            while self.in_flight:
                self._update()
        return output

    def _update(self) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        from remix_vllm.engine.decoding_stats import DecodingStats

        output, returned, counts = self.in_flight.popleft()
        names = list(output.num_scheduled_tokens)
        result = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[list(returned[name]) for name in names],
            logprobs=counts,
        )
        for outputs in self.scheduler.update_from_output(output, result).values():
            for item in outputs.outputs:
                self.outputs[item.request_id] += item.new_token_ids
                if item.finish_reason is not None:
                    self.finish_reasons[item.request_id] = str(item.finish_reason)
            stats = outputs.scheduler_stats
            if stats is not None and stats.spec_decoding_stats is not None:
                self.reports.append(DecodingStats.unpack(stats.spec_decoding_stats))

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
