"""C14: a page of the prefix cache holds the keys and values of decided tokens."""

from typing import Any

import pytest
import torch

from tests.models.mock_run import MockRun, pages_in_use, pages_of
from tests.models.policies import BLOCK4, BLOCK8, PAGE, Policy, ToyRequest

PROMPT = [i * 7 % 19 for i in range(21)]
SLOW = {"decoding": "low_confidence"}


def check_cached_pages(run: MockRun) -> None:
    """A toy's key and value is the embedding it was fed: of a decided token, its own."""
    engine = run.engine
    pool = engine.scheduler.kv_cache_manager.block_pool
    for request in engine.scheduler.running:
        tokens = torch.tensor(request.all_token_ids)
        embeddings = engine.models[request.request_id].embed(tokens)
        for i, page in enumerate(pages_of(engine, request.request_id)):
            if pool.blocks[page].block_hash is not None:
                final = embeddings[i * PAGE : (i + 1) * PAGE]
                assert torch.equal(engine.worker.cache.pages[page], final)


def cached_tokens(run: MockRun, name: str, request: ToyRequest) -> int:
    """Run the request; how many of its tokens came from the cache."""
    run.add(name, request)
    starts_at = None
    while run.engine.busy:
        for data in run.step().scheduled_new_reqs:
            starts_at = data.num_computed_tokens
        check_cached_pages(run)
    assert starts_at is not None
    return starts_at


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("policy", [BLOCK4, BLOCK8], ids=lambda p: p.name)
def test_a_repeated_prompt_hits_only_what_was_committed(
    policy: Policy, asynchronous: bool, mock_configs: Any
) -> None:
    """https://github.com/sgl-project/sglang/issues/35470: the block still being denoised got into
    the prefix cache."""
    config = mock_configs(policy, async_scheduling=asynchronous, max_num_batched_tokens=64)
    run = MockRun(policy, config)
    first = ToyRequest(1, PROMPT, 24, SLOW)
    assert cached_tokens(run, "first", first) == 0
    assert cached_tokens(run, "again", first) == 16
    assert run.engine.outputs["again"] == run.engine.outputs["first"]
    assert run.engine.nfe("again") == run.engine.nfe("first")

    # A conversation goes on: of the answer, what has had its final pass is there.
    block = policy.settings["block_length"]
    longer = ToyRequest(1, PROMPT + run.engine.outputs["first"] + [5, 6, 7], 8, SLOW)
    last_block = (len(PROMPT) + 24 - 1) // block * block
    assert cached_tokens(run, "longer", longer) == last_block // PAGE * PAGE

    run.drain()
    pool = run.engine.scheduler.kv_cache_manager.block_pool
    assert pages_in_use(run.engine) == 0
    assert all(page.ref_cnt == 0 for page in pool.blocks if not page.is_null)
    assert sum(page.block_hash is not None for page in pool.blocks) >= last_block // PAGE


@pytest.mark.parametrize("policy", [BLOCK4, BLOCK8], ids=lambda p: p.name)
def test_a_block_that_was_aborted_half_way_is_not_hit(policy: Policy, mock_configs: Any) -> None:
    """https://github.com/sgl-project/sglang/issues/35470, with the request gone mid-block."""
    run = MockRun(policy, mock_configs(policy, async_scheduling=False, max_num_batched_tokens=64))
    request = ToyRequest(1, PROMPT, 24, SLOW)
    expected = request.expected(policy, run.engine.worker.options).token_ids
    run.add("aborted", request)
    while len(run.engine.outputs["aborted"]) < 9:
        run.step()
        check_cached_pages(run)
    run.abort("aborted")
    run.drain()
    # Its prompt and all of its answer: what was decided at the abort and what was not.
    longer = ToyRequest(1, PROMPT + expected, 8, SLOW)
    committed = (len(PROMPT) + 9) // PAGE * PAGE
    assert 16 <= cached_tokens(run, "longer", longer) <= committed
    run.drain()
