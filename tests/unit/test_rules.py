"""The batched rules against the oracle: same tokens, same number of forwards, whatever else is in
the batch."""

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.reference import generate
from remix_vllm.decoding.rules import accept
from remix_vllm.ops.row_kernels import RowKernels
from tests.models.batch_loop import BatchLoop, Request
from tests.models.toy import ToyModel

VALID_TOKENS = 22
ENGINE = EngineOptions.parse({"window": 40, "preset": "official", "block_length": 16}, 16)
"""An ``official`` default keeps rows for the whole window, so every kind of request may join."""


@st.composite
def request_options(draw: st.DrawFn) -> dict[str, Any]:
    return draw(
        st.fixed_dictionaries(
            {
                "preset": st.sampled_from(["remix", "paper", "official"]),
                "decoding": st.sampled_from(["remix", "remix", "threshold", "low_confidence"]),
                "block_length": st.sampled_from([1, 3, 4, 8, 16, 40]),
            },
            optional={
                "threshold": st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
                "js_threshold": st.sampled_from([0.0, 0.05, 0.2, 0.33, 0.35, 1.0]),
                "beta_mix": st.sampled_from([0.0, 0.4, 1.0]),
                "accept_cap": st.booleans(),
                "rejection": st.sampled_from(["sticky", "one_step"]),
                "mixing_start": st.sampled_from([1, 2]),
                "history_across_blocks": st.booleans(),
                "exclude_mask": st.booleans(),
                "mix_top_k": st.sampled_from([1, 3, 24]),
                "max_nfe": st.integers(1, 30),
                "steps_per_block": st.integers(1, 20),
            },
        )
    )


@st.composite
def requests(draw: st.DrawFn) -> Request:
    model = ToyModel(
        draw(st.integers(0, 10_000)),
        sharpness=draw(st.sampled_from([0.0, 1.0, 4.0, 12.0])),
        mask_bias=draw(st.sampled_from([0.0, 0.0, 6.0])),
    )
    options = ENGINE.request_options(draw(request_options()))
    longest = 40 if options.needs_whole_region else 70
    return Request(
        model,
        draw(st.lists(st.integers(0, 19), min_size=1, max_size=9)),
        draw(st.integers(1, longest)),
        options,
        arrival=draw(st.integers(0, 6)),
        preempt_at=draw(st.frozensets(st.integers(1, 25), max_size=2)),
    )


def expected(request: Request) -> tuple[list[int], int]:
    result = generate(
        request.model,
        request.prompt,
        request.max_tokens,
        request.options,
        request.model.mask_token_id,
        VALID_TOKENS,
        ENGINE.window,
    )
    return result.token_ids, result.nfe


@settings(max_examples=40)
@given(batch=st.lists(requests(), min_size=1, max_size=5))
def test_a_batch_equals_the_oracle(batch: list[Request]) -> None:
    """Late arrivals, preemptions and neighbours with other options change nothing."""
    BatchLoop(ENGINE, batch, VALID_TOKENS).run()
    for request in batch:
        assert (request.token_ids, request.nfe) == expected(request), request.options


@settings(max_examples=15)
@given(request=requests())
def test_no_allowed_output_holds_a_forbidden_id(request: Request) -> None:
    BatchLoop(ENGINE, [request], VALID_TOKENS).run()
    if request.options.exclude_mask:
        assert not {20, 22, 23} & set(request.token_ids)
    assert len(request.token_ids) == request.max_tokens
    assert request.nfe <= request.max_tokens * (2 if request.options.needs_whole_region else 1)


def test_accept_breaks_ties_to_the_left_and_counts_per_request() -> None:
    confidence = torch.tensor([0.5, 0.9, 0.9, 0.9, 0.2, 0.2])
    accepted = accept(
        confidence,
        torch.tensor([True, True, False, True, True, True]),
        torch.tensor([0, 0, 0, 0, 1, 1]),
        threshold=torch.tensor([0.4, 0.4]),
        floor=torch.tensor([1, 1]),
        cap=torch.tensor([1, 9]),
    )
    assert accepted.tolist() == [False, True, False, False, True, False]


def test_the_divergence_of_distributions_with_zeros_is_a_number() -> None:
    """https://github.com/vllm-project/vllm/issues/47424: 0 * log 0 must not become NaN."""
    inf = torch.inf
    logits = torch.tensor([[0.0, -inf, -inf], [-inf, 0.0, -1e30], [1.0, 2.0, 3.0]])
    logsumexp = logits.logsumexp(-1)
    # The fourth is a sticky rejection: a row of zeros, whatever the logits.
    old, old_lse = torch.cat([logits, logits[:1]]), torch.cat([logsumexp, torch.tensor([inf])])
    for row in range(len(logits)):
        rows, at = torch.full((len(old),), row), torch.arange(len(old))
        divergence = RowKernels().divergence(logits, logsumexp, rows, old, old_lse, at)
        assert (divergence >= 0).all() and (divergence <= 0.6932).all()
        assert divergence[row] == 0
