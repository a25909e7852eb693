"""A mock engine under a policy: its requests, and what must hold after each step and at the end."""

from typing import Any

from tests.models.mock_engine import MockEngine
from tests.models.policies import PAGE, Policy, ToyRequest


class MockRun:
    """One engine and the requests it was given."""

    def __init__(
        self,
        policy: Policy,
        config: Any,
        num_pages: int = 64,
        page_size: int = PAGE,
        row_bounds: bool = False,
    ) -> None:
        self.policy = policy
        self.engine = MockEngine(config, num_pages, page_size, row_bounds)
        self.requests: dict[str, ToyRequest] = {}
        self.aborted: set[str] = set()

    def add(self, name: str, request: ToyRequest) -> None:
        self.requests[name] = request
        self.engine.add(
            name,
            request.model(self.policy),
            request.prompt,
            request.max_tokens,
            request.options,
            stop_token_ids=request.stop_token_ids,
            priority=request.priority,
        )

    def abort(self, name: str) -> None:
        self.engine.abort(name)
        self.aborted.add(name)

    def step(self) -> Any:
        """One checked step; returns the scheduler's output."""
        output = self.engine.step()
        check_step(self.engine, output)
        return output

    def drain(self, limit: int = 2000) -> None:
        """Step until nothing is left; then nothing is held and the oracle agrees."""
        for _ in range(limit):
            if not self.engine.busy:
                break
            self.step()
        else:
            raise AssertionError("requests do not end")
        self.check_nothing_held()
        self.check_outputs()

    def check_nothing_held(self) -> None:
        assert pages_in_use(self.engine) == 0
        assert not self.engine.scheduler.progress
        assert not self.engine.worker.slots
        state = self.engine.worker.state
        assert not state.mixed.any() and not state.has_history.any()

    def check_outputs(self) -> None:
        for name in self.requests.keys() - self.aborted:
            request = self.requests[name]
            result = request.expected(self.policy, self.engine.worker.options)
            got = (self.engine.outputs[name], self.engine.nfe(name))
            assert got == (result.token_ids, result.nfe), (name, request)

    @property
    def preemptions(self) -> int:
        return sum(request.num_preemptions for request in self.engine.requests.values())


def check_step(engine: MockEngine, output: Any) -> None:
    """What must hold after every step."""
    scheduler = engine.scheduler
    assert sum(output.num_scheduled_tokens.values()) <= scheduler.max_num_scheduled_tokens
    assert len(scheduler.running) <= scheduler.max_num_running_reqs
    for request in scheduler.running:
        assert 0 <= request.num_computed_tokens <= request.num_tokens
        assert request.num_output_placeholders == 0
    held = [page for r in scheduler.running for page in pages_of(engine, r.request_id)]
    shared = {page for page in held if held.count(page) > 1}
    pool = scheduler.kv_cache_manager.block_pool
    # Only committed pages are shared, and those are hashed.
    assert all(pool.blocks[page].block_hash is not None for page in shared)


def pages_of(engine: MockEngine, name: str) -> list[int]:
    return engine.scheduler.kv_cache_manager.get_block_ids(name)[0]


def pages_in_use(engine: MockEngine) -> int:
    pool = engine.scheduler.kv_cache_manager.block_pool
    return pool.num_gpu_blocks - 1 - pool.get_num_free_blocks()
