"""The kernels section of `gpu_check`: each Triton kernel against torch on the device, and alone.

What is checked through Triton's interpreter everywhere (`tests/unit/triton_rows_cases.py`) is the
odd cases; here it is the compiled kernels, at the sizes they are for.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_check import Finding
from remix_vllm.ops.row_passes import Compared
from remix_vllm.ops.triton_mixing import mix_rows
from remix_vllm.ops.triton_rows import compare_rows, scan_rows

VOCABULARY = 126464
SIZES = (1000, 4097, VOCABULARY)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
ROWS = (256, 2048)
"""Of 8 and of 64 sequences with a block of 32."""
WIDTH, CANDIDATES, KEPT = 4096, 50, 4
EPSILON = torch.finfo(torch.float32).eps
INF = float("inf")


def kernels(device: torch.device) -> list[Finding]:
    findings = []
    for dtype in DTYPES:
        for size in SIZES:
            for check in (check_scan, check_compare, check_mix):
                name = f"{check.__name__[6:]} {str(dtype)[6:]} V={size}"
                findings.append(attempt(name, check, size, dtype, device))
    for rows in ROWS:
        findings.append(attempt(f"scan, {rows} rows", time_scan, rows, device))
        findings.append(attempt(f"compare, {rows} rows", time_compare, rows, device))
        findings.append(attempt(f"mix, {rows} rows", time_mix, rows, device))
    return findings


def attempt(name: str, function: Callable[..., str], *arguments: Any) -> Finding:
    """A check that raises is a mismatch; so is one that does not compile."""
    try:
        return Finding(name, function(*arguments))
    except Exception as error:
        text = " ".join(str(error).split())
        return Finding(name, f"{type(error).__name__}: {text[:300]}", False)


def logits_rows(
    count: int, size: int, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> Tensor:
    """Peaked rows with ties and -inf, in a table with a wider row stride."""
    generator = torch.Generator(device).manual_seed(size + seed)
    rows = torch.randn(count, size + 24, generator=generator, device=device) * 4
    rows[:, 1::97] = -INF
    return rows.to(dtype)[:, :size]


def check_scan(size: int, dtype: torch.dtype, device: torch.device) -> str:
    logits = logits_rows(37, size, dtype, device)
    maximum, token, logsumexp, group_max = scan_rows(logits)
    wide = logits.float()
    padded = torch.nn.functional.pad(wide, (0, -size % 128), value=-INF)
    assert torch.equal(maximum, wide.amax(-1)), "maximum"
    columns = torch.arange(size, device=device)
    lowest = torch.where(wide == maximum[:, None], columns, size).amin(-1)
    assert torch.equal(token, lowest), "token is not the lowest of the maximum"
    assert torch.equal(group_max, padded.unflatten(1, (-1, 128)).amax(-1)), "group_max"
    error = (logsumexp.double() - wide.double().logsumexp(-1)).abs().max().item()
    assert error < 1e-5, f"logsumexp off by {error:.1e}"
    logits[3, size // 2], logits[4] = torch.nan, -INF
    maximum, token, logsumexp, _ = scan_rows(logits)
    assert maximum[3].isnan() and logsumexp[3].isnan(), "NaN is not seen"
    assert maximum[4] == -INF and logsumexp[4] == -INF and token[4] == 0, "a row of -inf"
    assert not logsumexp[torch.arange(37, device=device) != 3].isnan().any(), "NaN spreads"
    return f"logsumexp within {error:.1e}"


def check_compare(size: int, dtype: torch.dtype, device: torch.device) -> str:
    """Twice, so that the second run reads what the first one wrote."""
    logits = logits_rows(37, size, dtype, device)
    history = logits_rows(50, size, dtype, device, seed=1)
    history[:20] += 0.01 * torch.randn(20, size, device=device).to(dtype)
    totals = history.float().logsumexp(-1)
    totals[5] = INF
    at = torch.randperm(50, device=device)[:37]
    rows = torch.arange(37, device=device)
    worst = 0.0
    for round in range(2):
        current = logits.roll(round, 0).contiguous()
        logsumexp = current.float().logsumexp(-1)
        has = torch.arange(37, device=device) % 5 != 0
        q = (history[at].double() - totals[at, None]).exp()
        expected = torch.where(
            has, _divergence((current.double() - logsumexp[:, None]).exp(), q), 0
        )
        kept, kept_totals = history.clone(), totals.clone()
        kept[at], kept_totals[at] = current, logsumexp
        compared = Compared(rows, at, has, rows >= 0, torch.zeros(37, device=device))
        divergence = compare_rows(current, logsumexp, compared, history, totals)
        worst = max(worst, (divergence - expected).abs().max().item())
        assert worst < 2e-5, f"divergence off by {worst:.1e}"
        assert torch.equal(history, kept) and torch.equal(totals, kept_totals), "history"
    far = torch.full((1, size), -60.0, device=device, dtype=dtype)
    far[0, 0] = 2.0
    total = torch.tensor([2.0], device=device)
    one, yes = torch.zeros(1, dtype=torch.int64, device=device), has[1:2]
    compared = Compared(one, one, yes, yes, torch.zeros_like(total))
    nothing = compare_rows(far, total, compared, far.clone(), total.clone()).item()
    # In both rows 1 and else below epsilon, which must not add up to anything.
    assert abs(nothing) < 1e-7, f"ids below epsilon cost {nothing:.1e}"
    return f"divergence within {worst:.1e}"


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    p, q = p.clamp_min(EPSILON), q.clamp_min(EPSILON)
    log_mean = ((p + q) / 2).log()
    return 0.5 * (p * (p.log() - log_mean) + q * (q.log() - log_mean)).sum(-1)


def check_mix(size: int, dtype: torch.dtype, device: torch.device) -> str:
    table, ids, weights = mixing(37, size, 1536, dtype, device)
    first, last = size // 3, 2 * size // 3
    mixed = mix_rows(ids, weights, table[first:last], first)
    mine = (ids >= first) & (ids < last)
    rows = table[ids].double()
    expected = torch.where(mine, weights, 0).double()[:, None] @ rows
    error = (mixed - expected[:, 0]).abs().max().item()
    assert error < 1e-5, f"off by {error:.1e}"
    return f"within {error:.1e}"


def mixing(
    count: int, size: int, width: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """A table, ids and weights of which the first few are not zero."""
    table = torch.randn(size, width, device=device).to(dtype)
    ids = torch.randint(0, size, (count, CANDIDATES), device=device)
    weights = torch.rand(count, CANDIDATES, device=device) / KEPT
    weights[:, KEPT:] = 0
    return table, ids, weights


def time_scan(rows: int, device: torch.device) -> str:
    logits = torch.randn(rows, VOCABULARY, device=device).bfloat16()
    return _speed(lambda: scan_rows(logits), logits.nbytes * (1 + 2 / 128))


def time_compare(rows: int, device: torch.device) -> str:
    logits = torch.randn(rows, VOCABULARY, device=device).bfloat16()
    history, total = torch.randn_like(logits), logits.float().logsumexp(-1)
    at = torch.arange(rows, device=device)
    has = torch.ones(rows, dtype=torch.bool, device=device)
    totals = total.clone()
    compared = Compared(at, at, has, has, torch.zeros_like(total))
    compare = lambda: compare_rows(logits, total, compared, history, totals)  # noqa: E731
    return _speed(compare, 3 * logits.nbytes)


def time_mix(rows: int, device: torch.device) -> str:
    table, ids, weights = mixing(rows, VOCABULARY, WIDTH, torch.bfloat16, device)
    moved = rows * WIDTH * (KEPT * table.itemsize + 4)
    return _speed(lambda: mix_rows(ids, weights, table, 0), moved)


def _speed(run: Callable[[], Any], moved: float, repeat: int = 20) -> str:
    """Median time of one launch and the bytes it has to move against it."""
    times = []
    for _ in range(repeat + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    # The first launches compile and fill the caches.
    milliseconds = sorted(times[3:])[repeat // 2]
    return f"{milliseconds * 1e3:.0f} us, {moved / milliseconds / 1e6:.0f} GB/s"
