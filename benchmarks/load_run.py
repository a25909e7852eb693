"""The measurement itself: each system on each model, one cell after the other."""

import argparse
import json
import shlex
import time
import urllib.request
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from benchmarks.load_cell import LATENCIES, PERCENTILES, Cell, reference_values, run_values
from benchmarks.load_client import BenchClient
from benchmarks.load_memory import GIB, PeakMemory
from benchmarks.load_models import Model
from benchmarks.load_reference import measure_reference
from benchmarks.load_report import plot
from benchmarks.load_systems import (
    REFERENCE,
    SERVED_NAME,
    SYSTEMS,
    System,
    cores,
    server_environment,
)
from benchmarks.server import Server, vllm_serve

FORWARDS = "vllm:diffusion_num_denoising_steps_total"


class Load:
    """What `serve_load` was asked to measure, and what it has so far."""

    def __init__(self, arguments: argparse.Namespace, client: BenchClient, notes: str) -> None:
        self.arguments = arguments
        self.notes = notes
        self.client = client
        self.cells: list[Cell] = []
        self.failures: list[str] = []
        self.began = time.monotonic()
        if arguments.resume and arguments.json and arguments.json.exists():
            saved = json.loads(arguments.json.read_text())
            self.cells = [Cell(**cell) for cell in saved["cells"]]

    def measure(self, model: Model, dtype: str) -> None:
        """All systems on one model; one that fails is reported and left out."""
        for name in self.arguments.systems:
            group = [cell for cell in self.cells if cell.key[:3] == (model.name, dtype, name)]
            have = {cell.concurrency for cell in group}
            levels = [c for c in self.arguments.concurrency if c not in have]
            try:
                if name == REFERENCE:
                    if not group:
                        self.measure_reference(model, dtype)
                elif levels:
                    self.measure_system(model, dtype, SYSTEMS[name], levels)
            except RuntimeError as error:
                self.failures.append(f"{model.name}, {dtype}, {name}")
                self.say(f"{self.failures[-1]} failed:\n{error}")
            self.write()

    def measure_reference(self, model: Model, dtype: str) -> None:
        options = self.arguments
        measured = measure_reference(
            model, dtype, options.max_nfe, options.repeat, options.budget_seconds
        )
        self.add(
            Cell(
                model.name,
                dtype,
                REFERENCE,
                None,
                len(measured["runs"][0]),
                [reference_values(run) for run in measured["runs"]],
                measured["peak_bytes"] / GIB,
                model.scripted,
                server="",
                client="",
            )
        )

    def measure_system(
        self, model: Model, dtype: str, system: System, levels: Iterable[int]
    ) -> None:
        options = self.arguments
        path = model.llama if system.causal else model.llada
        flags = system.arguments(model, options.max_nfe, dtype, options.enforce_eager)
        with vllm_serve(path, flags, server_environment()) as server:
            title = f"{model.name}, {dtype}, {system.name}"
            self.say(f"{title}: started in {server.start_seconds:.0f} s")
            with PeakMemory(server.process_id) as memory:
                try:
                    # Warms up, and is discarded.
                    self.client.run(self.bench(server, model, system, 4, 4))
                    for concurrency in levels:
                        requests = model.waves * max(options.min_requests, concurrency)
                        command = self.bench(server, model, system, concurrency, requests)
                        memory.reset()
                        runs = self.runs(server, system, command)
                        self.add(
                            Cell(
                                model.name,
                                dtype,
                                system.name,
                                concurrency,
                                requests,
                                runs,
                                memory.peak / GIB,
                                model.scripted,
                                server=shlex.join(flags),
                                client=shown(command),
                            )
                        )
                except (RuntimeError, OSError) as error:
                    raise RuntimeError(f"{error}\nserver log:\n{server.log_tail()}") from error

    def runs(self, server: Server, system: System, command: list[str]) -> list[dict[str, float]]:
        """One run, and more up to ``repeat`` while the budget lasts."""
        runs: list[dict[str, float]] = []
        while len(runs) < self.arguments.repeat:
            spent = sum(run["seconds"] for run in runs)
            if runs and spent + spent / len(runs) > self.arguments.budget_seconds:
                break
            before = None if system.causal else counter(server.url, FORWARDS)
            result = self.client.run(command)
            after = None if before is None else counter(server.url, FORWARDS) - before
            runs.append(run_values(result, after))
        return runs

    def bench(
        self, server: Server, model: Model, system: System, concurrency: int, requests: int
    ) -> list[str]:
        """Arguments of `vllm bench serve`."""
        command = ["--base-url", server.url, "--endpoint", "/v1/completions"]
        command += ["--model", str(model.llada), "--served-model-name", SERVED_NAME]
        command += ["--dataset-name", "sharegpt", "--dataset-path", str(model.prompts)]
        command += ["--disable-shuffle", "--num-prompts", str(requests)]
        command += ["--max-concurrency", str(concurrency), "--temperature", "0", "--disable-tqdm"]
        command += ["--percentile-metrics", ",".join(LATENCIES)]
        command += ["--metric-percentiles", ",".join(map(str, PERCENTILES))]
        # A causal model is asked for as many tokens as the data set's answer has.
        if not system.causal:
            command += ["--sharegpt-output-len", str(model.max_tokens)]
        if system.causal or model.scripted:
            command += ["--ignore-eos"]
        return command

    def add(self, cell: Cell) -> None:
        self.cells.append(cell)
        total = len(self.arguments.models) * len(self.arguments.dtype)
        per_model = sum(
            1 if name == REFERENCE else len(self.arguments.concurrency)
            for name in self.arguments.systems
        )
        level = "" if cell.concurrency is None else f" at {cell.concurrency}"
        self.say(
            f"[{len(self.cells)}/{total * per_model}] {cell.model}, {cell.dtype}, {cell.system}"
            f"{level}: {cell.speed:.1f} tokens/s, {len(cell.runs)} runs of "
            f"{cell.median('seconds'):.1f} s, NFE {cell.median('nfe'):.2f}"
        )

    def say(self, text: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self.began), 60)
        print(f"{minutes:3}:{seconds:02} {text}", flush=True)

    def write(self) -> None:
        options = self.arguments
        if options.json:
            settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
            content = {
                "settings": settings,
                "machine": machine(),
                "notes": self.notes,
                "failures": self.failures,
                "cells": [asdict(cell) for cell in self.cells],
            }
            options.json.write_text(json.dumps(content, indent=1))
        if options.png and self.cells:
            try:
                plot(self.cells, options.png)
            except ImportError as error:
                print(f"no picture: {error}; pip install 'remix_vllm[bench]'")


def counter(url: str, name: str) -> float:
    """A counter of a server's `/metrics`, summed over its labels."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


def shown(command: Iterable[str]) -> str:
    """For a shell, with the names of files instead of where they were."""
    return shlex.join(Path(word).name if Path(word).exists() else word for word in command)


def machine() -> dict[str, str | int]:
    from importlib.metadata import version

    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": names[0] if names else "unknown",
        "cores": len(cores()),
        "torch": version("torch"),
        "vllm": version("vllm"),
    }
