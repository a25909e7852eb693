"""Tables and a picture of what `serve_load` measured."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.load_cell import Cell
from benchmarks.load_systems import REFERENCE

TARGET_CONCURRENCY = 16


def report(cells: Sequence[Cell]) -> str:
    """Markdown: for each model and dtype the measurements, then the ratios."""
    parts = []
    for model, dtype in dict.fromkeys((cell.model, cell.dtype) for cell in cells):
        group = [cell for cell in cells if (cell.model, cell.dtype) == (model, dtype)]
        parts += [f"## {_title(group)}", measurements(group), ratios(group), target(group)]
    return "\n\n".join(filter(None, parts))


def measurements(group: Sequence[Cell]) -> str:
    titles = ["at once", "system", "requests x runs", "tokens/s (min to max)", "TTFT p50 / p99 ms"]
    titles += ["ITL p50 / p99 ms", "NFE", "tokens per forward", "peak GiB"]
    lines = [_row(titles), "|---" * len(titles) + "|"]
    for cell in sorted(group, key=lambda cell: cell.concurrency or 0):
        speeds = cell.values("tokens_per_second")
        row = [str(cell.concurrency or "-"), cell.system, f"{cell.requests} x {len(cell.runs)}"]
        row.append(f"{cell.speed:.1f} ({min(speeds):.1f} to {max(speeds):.1f})")
        row += [_latency(cell, "ttft"), _latency(cell, "itl")]
        row += [f"{cell.median('nfe'):.2f}", f"{cell.median('tokens_per_forward'):.2f}"]
        lines.append(_row([*row, f"{cell.peak_gib:.2f}"]))
    return "\n".join(lines)


def ratios(group: Sequence[Cell]) -> str:
    """Tokens per second of each system as a multiple of the others' at the same concurrency."""
    systems = list(dict.fromkeys(cell.system for cell in group))
    speeds = {(cell.system, cell.concurrency): cell.speed for cell in group}
    titles = ["at once", "tokens/s of", *(f"/ {system}" for system in systems)]
    lines = [_row(titles), "|---" * len(titles) + "|"]
    for cell in sorted(group, key=lambda cell: cell.concurrency or 0):
        if cell.system == REFERENCE:
            continue
        row = [str(cell.concurrency), cell.system]
        for system in systems:
            other = speeds.get((system, None if system == REFERENCE else cell.concurrency))
            row.append("-" if other is None else f"{cell.speed / other:.2f}")
        lines.append(_row(row))
    return "\n".join(lines)


def target(group: Sequence[Cell]) -> str:
    """ReMix's best policy against the reference loop."""
    reference = [cell.speed for cell in group if cell.system == REFERENCE]
    ours = [
        cell
        for cell in group
        if cell.system.startswith("remix") and cell.concurrency == TARGET_CONCURRENCY
    ]
    if not reference or not ours:
        return ""
    best = max(ours, key=lambda cell: cell.speed)
    return (
        f"{best.system} at {TARGET_CONCURRENCY} at once: {best.speed / reference[0]:.2f} times the "
        f"reference loop"
    )


def _title(group: Sequence[Cell]) -> str:
    suffix = " (scripted acceptance)" if group[0].scripted else ""
    return f"{group[0].model}, {group[0].dtype}{suffix}"


def _row(fields: Sequence[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _latency(cell: Cell, name: str) -> str:
    """Nothing to tell if every answer came in one piece."""
    keys = [f"{name}_p50_ms", f"{name}_p99_ms"]
    if any(key not in run or not run[key] for run in cell.runs for key in keys):
        return "-"
    return " / ".join(f"{cell.median(key):.0f}" for key in keys)


def plot(cells: Sequence[Cell], path: Path) -> None:
    """Throughput against concurrency, one panel per model and dtype.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys((cell.model, cell.dtype) for cell in cells))
    figure, all_axes = pyplot.subplots(
        1, len(panels), figsize=(5.5 * len(panels), 4.5), squeeze=False, layout="constrained"
    )
    colours = {system: f"C{n}" for n, system in enumerate(dict.fromkeys(c.system for c in cells))}
    for axes, (model, dtype) in zip(all_axes[0], panels, strict=True):
        group = [cell for cell in cells if (cell.model, cell.dtype) == (model, dtype)]
        for system in dict.fromkeys(cell.system for cell in group):
            own = [cell for cell in group if cell.system == system]
            if system == REFERENCE:
                axes.axhline(own[0].speed, color=colours[system], linestyle="--", label=system)
                continue
            own.sort(key=lambda cell: cell.concurrency or 0)
            speeds = [cell.speed for cell in own]
            below = [cell.speed - min(cell.values("tokens_per_second")) for cell in own]
            above = [max(cell.values("tokens_per_second")) - cell.speed for cell in own]
            axes.errorbar(
                [cell.concurrency for cell in own],
                speeds,
                yerr=[below, above],
                color=colours[system],
                marker="o",
                capsize=3,
                label=system,
            )
        ticks = sorted({cell.concurrency for cell in group if cell.concurrency})
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_yscale("log")
        axes.set_title(_title(group))
        axes.set_xlabel("requests at once")
        axes.grid(alpha=0.3)
    all_axes[0][0].set_ylabel("output tokens/s")
    all_axes[0][0].legend()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
