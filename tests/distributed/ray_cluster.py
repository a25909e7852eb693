"""A Ray cluster of several nodes on this machine, for the length of a ``with`` block."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

RAY = str(Path(sys.executable).parent / "ray")
COMMON = ["--block", "--disable-usage-stats", "--object-store-memory", "80000000"]
# Raylets of one machine would hand out the same ports.
ANY_PORTS = ["--min-worker-port", "0", "--max-worker-port", "0"]


@contextlib.contextmanager
def ray_cluster(others: Sequence[tuple[int, Mapping[str, str]]]) -> Iterator[str]:
    """Address of a head node with one CPU and of ``others``, each (CPUs, environment to add)."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    # Ray keeps sockets below this folder, whose names must be short.
    with tempfile.TemporaryDirectory(prefix="ray") as folder, contextlib.ExitStack() as nodes:
        head = ["--head", "--port", str(port), "--include-dashboard", "false"]
        nodes.enter_context(_node([*head, "--num-cpus", "1", "--temp-dir", folder], {}))
        for cpus, environment in others:
            arguments = ["--address", address, "--num-cpus", str(cpus)]
            nodes.enter_context(_node(arguments, environment))
        yield address


@contextlib.contextmanager
def _node(arguments: list[str], environment: Mapping[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [RAY, "start", *COMMON, *ANY_PORTS, *arguments],
        # A token in the home folder would turn authentication on here, but not in clients that are
        # given an address.
        env=os.environ | {"RAY_AUTH_MODE": "disabled"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        # Several that start at once on one machine take each other's ports.
        _wait_until_started(process)
        yield
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_until_started(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if "Ray runtime started" in line:
            return
    raise RuntimeError(f"ray start ended with code {process.wait()}:\n{''.join(said)}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
