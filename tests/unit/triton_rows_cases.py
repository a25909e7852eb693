"""The Triton kernels against plain torch, through Triton's interpreter.

Run by ``test_triton_rows.py`` in a process where ``TRITON_INTERPRET`` was set before anything
imported Triton: that is when its own functions are decided to be interpreted.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.reference import generate
from remix_vllm.ops.row_passes import Compared
from remix_vllm.ops.triton_mixing import mix_rows
from remix_vllm.ops.triton_passes import TritonPasses
from remix_vllm.ops.triton_rows import compare_rows, scan_rows
from tests.models.batch_loop import BatchLoop, Request
from tests.models.toy import ToyModel

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
pytestmark = pytest.mark.filterwarnings("ignore:All-NaN slice")
COUNTS = [0, 1, 7]
SIZES = [1, 127, 128, 129, 1000, 4096, 4097, 9001]
INF = float("inf")
EPSILON = torch.finfo(torch.float32).eps


@pytest.fixture(autouse=True)
def no_warnings_of_numpy() -> Iterator[None]:
    """The interpreter computes in NumPy, which warns of infinities and NaN."""
    with np.errstate(all="ignore"):
        yield


def logits_rows(count: int, size: int, dtype: torch.dtype, padding: int = 0) -> Tensor:
    """Peaked random rows with ties and -inf; the row stride is ``size + padding``, and what is in
    the padding must not matter."""
    generator = torch.Generator().manual_seed(count * 10007 + size)
    rows = torch.randn(count, size + padding, generator=generator) * 4
    rows[:, size:] = 1e4
    rows = (rows * 8).round() / 8
    rows[:, 1:size:5] = -INF
    return rows.to(dtype)[:, :size]


def expected_group_max(logits: Tensor, group: int) -> Tensor:
    count, size = logits.shape
    groups = -(-size // group)
    padded = torch.full((count, groups * group), -INF)
    padded[:, :size] = logits.float()
    return padded.view(count, groups, group).amax(-1)


def check_scan(logits: Tensor, group: int = 128) -> None:
    maximum, token, logsumexp, group_max = scan_rows(logits, group)
    top = logits.float().amax(-1)
    lowest = [row.tolist().index(value) for row, value in zip(logits.float(), top, strict=True)]
    assert token.tolist() == lowest
    assert torch.equal(maximum, top)
    torch.testing.assert_close(logsumexp, logits.double().logsumexp(-1).float())
    assert torch.equal(group_max, expected_group_max(logits, group))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_scan(size: int, dtype: torch.dtype) -> None:
    for count in COUNTS:
        check_scan(logits_rows(count, size, dtype))


@pytest.mark.parametrize("group", [1, 16, 4096])
def test_scan_by_groups_of_another_size(group: int) -> None:
    check_scan(logits_rows(3, 1000, torch.float32), group)


def test_scan_of_padded_rows() -> None:
    check_scan(logits_rows(7, 1000, torch.bfloat16, padding=24))


@pytest.mark.parametrize("places", [(0, 5000), (127, 128), (4095, 4096), (4100, 8200), (9000,)])
def test_scan_takes_the_lowest_of_equal_maxima(places: tuple[int, ...]) -> None:
    """Equal in one lane of two tiles, in neighbouring groups, and in the last, shorter group."""
    logits = logits_rows(2, 9001, torch.float32)
    logits[0, list(places)] = 50.0
    logits[1, list(places)] = -logits[1].abs().nan_to_num(posinf=0).max() + 100.0
    check_scan(logits)


def test_scan_of_rows_far_from_zero_does_not_overflow() -> None:
    check_scan(logits_rows(2, 5000, torch.float32) + torch.tensor([[3e4], [-3e4]]))


def test_scan_of_a_single_finite_logit() -> None:
    logits = torch.full((2, 5000), -INF)
    logits[0, 0] = logits[1, 4999] = -3.0
    check_scan(logits)


@pytest.mark.parametrize("size", [127, 5000])
def test_scan_of_rows_without_a_distribution(size: int) -> None:
    """A NaN shows in maximum and logsumexp wherever it is; the other rows are what they were."""
    logits = logits_rows(6, size, torch.float32)
    clean = scan_rows(logits)
    logits[0, 3] = logits[1, size - 1] = logits[2, :] = torch.nan
    logits[3, 2] = INF
    logits[4] = -INF
    maximum, token, logsumexp, _ = scan_rows(logits)
    assert maximum[:4].isnan().all() and logsumexp[:4].isnan().all()
    assert maximum[4] == -INF and logsumexp[4] == -INF and token[4] == 0
    assert ((token >= 0) & (token < size)).all()
    assert [t[5] for t in (maximum, token, logsumexp)] == [t[5] for t in clean[:3]]


def js_divergence(p: Tensor, q: Tensor) -> Tensor:
    """The official code's: both clamped below at float32 epsilon, in float64, ``[N]`` float32."""
    p, q = p.double().clamp_min(EPSILON), q.double().clamp_min(EPSILON)
    log_mean = ((p + q) / 2).log()
    return 0.5 * (p * (p.log() - log_mean) + q * (q.log() - log_mean)).sum(-1).float()


class Comparison:
    """Seven rows against ten remembered ones, in an order of their own."""

    def __init__(self, size: int, dtype: torch.dtype, padding: int = 0, count: int = 7) -> None:
        self.logits = logits_rows(count, size, dtype, padding)
        self.logsumexp = self.logits.float().logsumexp(-1)
        self.history = logits_rows(10, size, dtype, padding)
        self.history_logsumexp = self.history.float().logsumexp(-1)
        self.at = torch.tensor([9, 2, 0, 5, 7, 1, 8])[:count]
        self.has_history = torch.tensor([True, True, False, True, True, False, True])[:count]
        self.kept = torch.ones(count, dtype=torch.bool)

    def run(self, rows: Tensor | None = None) -> Tensor:
        rows = torch.arange(len(self.at)) if rows is None else rows
        threshold = torch.zeros(len(self.at))
        compared = Compared(rows, self.at, self.has_history, self.kept, threshold)
        return compare_rows(
            self.logits, self.logsumexp, compared, self.history, self.history_logsumexp
        )

    def check(self) -> Tensor:
        p = (self.logits.float() - self.logsumexp[:, None]).exp()
        remembered = self.history[self.at].float()
        q = (remembered - self.history_logsumexp[self.at][:, None]).exp()
        expected = torch.where(self.has_history, js_divergence(p, q), 0.0)
        history, totals = self.history.clone(), self.history_logsumexp.clone()
        history[self.at], totals[self.at] = self.logits, self.logsumexp

        divergence = self.run()
        torch.testing.assert_close(divergence, expected, rtol=1e-5, atol=1e-6)
        assert torch.equal(self.history, history)
        assert torch.equal(self.history_logsumexp, totals)
        return divergence


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_compare(size: int, dtype: torch.dtype) -> None:
    for count in COUNTS:
        Comparison(size, dtype, count=count).check()


def test_rows_in_another_order() -> None:
    """Each is compared with its own place, wherever it is among the logits."""
    straight, turned = (Comparison(1000, torch.float32) for _ in range(2))
    order = torch.tensor([4, 0, 6, 2])
    turned.at, turned.has_history = straight.at[order], straight.has_history[order]
    turned.kept = straight.kept[:4]
    assert torch.equal(turned.run(order), straight.run()[order])
    assert torch.equal(turned.history[turned.at], straight.history[turned.at])


def test_a_row_that_is_not_kept_is_neither_compared_nor_written() -> None:
    comparison, whole = (Comparison(1000, torch.float32) for _ in range(2))
    before = comparison.history.clone(), comparison.history_logsumexp.clone()
    comparison.kept[1:3] = False
    # Even if its place is another's.
    others = comparison.at[1:3].clone()
    comparison.at[1:3] = comparison.at[0]
    divergence, expected = comparison.run(), whole.run()
    assert (divergence[1:3] == 0).all()
    kept = comparison.kept
    assert torch.equal(divergence[kept], expected[kept])
    assert torch.equal(comparison.history[comparison.at[kept]], comparison.logits[kept])
    assert torch.equal(comparison.history[others], before[0][others])
    assert torch.equal(comparison.history_logsumexp[others], before[1][others])


def test_compare_writes_nothing_beside_the_rows() -> None:
    """Columns of padding, and the rows of history that nobody names, keep what they had."""
    comparison = Comparison(1000, torch.float16, padding=8)
    comparison.check()
    assert (comparison.history._base[:, 1000:] == 1e4).all()  # type: ignore[index]


def test_what_is_left_in_an_unused_history_does_not_matter() -> None:
    comparison = Comparison(1000, torch.float32)
    unused = comparison.at[~comparison.has_history]
    comparison.history[unused], comparison.history_logsumexp[unused] = torch.nan, torch.nan
    divergence = comparison.run()
    assert (divergence[~comparison.has_history] == 0).all()
    assert (divergence[comparison.has_history] > 0).all()
    assert torch.equal(comparison.history[comparison.at], comparison.logits)
    assert torch.equal(comparison.history_logsumexp[comparison.at], comparison.logsumexp)


def test_compare_with_a_row_of_zeros() -> None:
    """+inf stands for it, whatever the row holds: about ln(2)/2 from any distribution."""
    comparison = Comparison(1000, torch.float32)
    zeros = comparison.at[:2]
    comparison.history_logsumexp[zeros] = INF
    comparison.history[zeros[0]] = torch.nan
    p = (comparison.logits.float() - comparison.logsumexp[:, None]).exp()
    expected = js_divergence(p[:2], torch.zeros(2, 1000))
    torch.testing.assert_close(comparison.run()[:2], expected, rtol=1e-5, atol=1e-6)


def test_ids_below_epsilon_in_both_cost_exactly_nothing() -> None:
    comparison = Comparison(9001, torch.float32)
    for rows, totals in (
        (comparison.logits, comparison.logsumexp),
        (comparison.history, comparison.history_logsumexp),
    ):
        rows[:, :] = -60.0
        rows[:, 4] = -INF
        rows[:, 1] = 2.0
        totals.copy_(rows.logsumexp(-1))
    # ln 1 is 0 however it is rounded: all that is left are the nine thousand ids below epsilon.
    assert comparison.run().tolist() == [0.0] * 7


def test_a_second_comparison_is_with_the_first_one() -> None:
    comparison = Comparison(1000, torch.bfloat16)
    comparison.run()
    comparison.has_history[:] = True
    assert comparison.run().abs().max() < 1e-6


def test_a_nan_reaches_the_divergence_of_its_own_row_only() -> None:
    comparison = Comparison(5000, torch.float32)
    clean = Comparison(5000, torch.float32).run()
    comparison.logits[0, 4500] = torch.nan
    comparison.history[comparison.at[1], 3] = torch.nan
    divergence = comparison.run()
    assert divergence[:2].isnan().all()
    assert torch.equal(divergence[2:], clean[2:])


def test_probability_epsilon_is_that_of_the_rules() -> None:
    """A probability between epsilon and its double is not clamped, one below is."""
    p = torch.tensor([[1.0, 1.5 * EPSILON, 0.5 * EPSILON]])
    history, totals = torch.zeros(1, 3), torch.tensor([INF])
    zero, yes = torch.tensor([0]), torch.tensor([True])
    compared = Compared(zero, zero, yes, yes, torch.zeros(1))
    divergence = compare_rows(p.log(), torch.zeros(1), compared, history, totals)
    expected = js_divergence(p, torch.zeros(1, 3))
    torch.testing.assert_close(divergence, expected, rtol=1e-6, atol=1e-9)


def test_requests_decoded_with_the_kernels_equal_the_oracle() -> None:
    """In one batch, all options different, as on a GPU."""
    engine = EngineOptions.parse({"window": 24, "preset": "official", "block_length": 8}, 8)
    options: list[dict[str, Any]] = [
        {},
        {"preset": "remix", "js_threshold": 0.05},
        {"preset": "paper", "js_threshold": 0.2, "threshold": 0.5},
        {"preset": "remix", "decoding": "threshold"},
        {"preset": "remix", "block_length": 5, "beta_mix": 1.0, "mix_top_k": 3},
    ]
    requests = [
        Request(ToyModel(seed, sharpness=4.0), [1, seed], 24, engine.request_options(each))
        for seed, each in enumerate(options)
    ]
    BatchLoop(engine, requests, num_valid_tokens=22, passes=TritonPasses()).run()
    for request in requests:
        model = request.model
        arguments = request.prompt, 24, request.options, model.mask_token_id, 22, engine.window
        expected = generate(model, *arguments)
        assert (request.token_ids, request.nfe) == (expected.token_ids, expected.nfe)


def mixing(count: int, candidates: int, rows: int) -> tuple[Tensor, Tensor]:
    """Ids of a vocabulary of ``rows``, and weights of which some are zero."""
    generator = torch.Generator().manual_seed(count + candidates)
    ids = torch.randint(0, rows, (count, candidates), generator=generator)
    weights = torch.rand(count, candidates, generator=generator)
    weights[torch.rand(weights.shape, generator=generator) < 0.3] = 0.0
    return ids, weights


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("candidates, width", [(1, 64), (5, 100), (50, 1536)])
def test_mix(dtype: torch.dtype, count: int, candidates: int, width: int) -> None:
    table = torch.randn(300, width, generator=torch.Generator().manual_seed(1)).to(dtype)
    ids, weights = mixing(count, candidates, 300)
    mixed = mix_rows(ids, weights, table, 0)
    expected = torch.zeros(count, width)
    for k in range(candidates):
        expected += weights[:, k, None] * table[ids[:, k]].float()
    assert torch.equal(mixed, expected)


def test_shards_of_the_table_sum_to_the_whole() -> None:
    table = torch.randn(300, 100, generator=torch.Generator().manual_seed(1)).bfloat16()
    ids, weights = mixing(7, 20, 300)
    ids[0, :6] = torch.tensor([0, 127, 128, 255, 256, 299])
    weights[0, :6] = 0.5
    parts = [(0, 128), (128, 256), (256, 300)]
    summed = sum(mix_rows(ids, weights, table[a:b], a) for a, b in parts)
    torch.testing.assert_close(summed, mix_rows(ids, weights, table, 0))


def test_a_candidate_of_weight_zero_is_not_read() -> None:
    table = torch.randn(300, 100, generator=torch.Generator().manual_seed(1))
    ids, weights = mixing(7, 20, 200)
    expected = mix_rows(ids, weights, table, 0)
    table[250] = torch.nan
    ids[weights == 0] = 250
    assert torch.equal(mix_rows(ids, weights, table, 0), expected)
    ids[weights == 0] = 10**15
    assert torch.equal(mix_rows(ids, weights, table, 0), expected)
    assert (mix_rows(ids, torch.zeros_like(weights), table, 0) == 0).all()


def test_mix_of_padded_tables_and_views() -> None:
    table = torch.randn(300, 128, generator=torch.Generator().manual_seed(1))
    ids, weights = mixing(7, 20, 300)
    mixed = mix_rows(ids[:, :9], weights[:, :9], table[:, :100], 0)
    expected = mix_rows(ids[:, :9].clone(), weights[:, :9].clone(), table[:, :100].clone(), 0)
    assert torch.equal(mixed, expected)
