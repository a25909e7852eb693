"""C17: bidirectional queries write keys and values in their own pages, never in shared ones."""

from typing import Any

import pytest
import torch

from tests.models.mock_run import MockRun, pages_of
from tests.models.policies import BLOCK4, BLOCK8, PAGE, Policy, ToyRequest

SHARED = [i * 7 % 19 for i in range(2 * PAGE)]


@pytest.mark.parametrize("tail", [0, 1, PAGE - 1, PAGE])
@pytest.mark.parametrize("policy", [BLOCK4, BLOCK8], ids=lambda p: p.name)
def test_shared_and_free_pages_are_unchanged_after_each_step(
    policy: Policy, tail: int, mock_configs: Any
) -> None:
    """https://github.com/vllm-project/vllm/issues/42971. The prompt ends before, on and after the
    edge of a page, which is also the edge of a block."""
    config = mock_configs(policy, async_scheduling=False, max_num_batched_tokens=96)
    run = MockRun(policy, config)
    engine = run.engine
    pool = engine.scheduler.kv_cache_manager.block_pool
    prompt = SHARED + [(3 * i + 1) % 19 for i in range(tail)]
    run.add("first", ToyRequest(4, prompt + [1], 12, {"threshold": 0.3}))
    run.drain()
    run.add("a", ToyRequest(4, prompt + [2], 12, {"threshold": 0.3}))
    run.add("b", ToyRequest(4, prompt + [3, 4], 12, {"decoding": "low_confidence"}))
    shared: set[int] = set()
    while engine.busy:
        before = engine.worker.cache.pages.clone()
        hashed = {page.block_id for page in pool.blocks if page.block_hash is not None}
        run.step()
        running = [request.request_id for request in engine.scheduler.running]
        held = {page for name in running for page in pages_of(engine, name)}
        fresh = {page.block_id for page in pool.blocks if page.block_hash is not None} - hashed
        changed = {
            page
            for page in range(len(before))
            if not torch.equal(before[page], engine.worker.cache.pages[page])
        }
        # Hashed before the step and still: somebody may have read it, nobody may write it.
        still = {page for page in hashed if pool.blocks[page].block_hash is not None}
        assert not changed & still
        shared |= {page for page in held if pool.blocks[page].ref_cnt > 1} - fresh
    assert shared
    run.drain()


def test_a_page_smaller_than_a_block_is_refused_with_prefix_caching(mock_configs: Any) -> None:
    """https://github.com/vllm-project/vllm/issues/42971: it could be hashed before its block is
    done."""
    config = mock_configs(BLOCK8, async_scheduling=False, max_num_batched_tokens=96)
    with pytest.raises(ValueError, match="block_size=4: .*multiples of 8"):
        MockRun(BLOCK8, config, page_size=4)


def test_a_page_smaller_than_a_block_is_exact_without_prefix_caching(mock_configs: Any) -> None:
    """https://github.com/vllm-project/vllm/issues/42971."""
    config = mock_configs(
        BLOCK8, async_scheduling=False, max_num_batched_tokens=96, enable_prefix_caching=False
    )
    run = MockRun(BLOCK8, config, page_size=4)
    run.add("a", ToyRequest(4, SHARED + [1], 21, {"threshold": 0.3}))
    run.add("b", ToyRequest(4, SHARED[:5], 21, {}))
    run.drain()
