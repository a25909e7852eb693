"""A `vllm serve` process of one's own for the length of a `with` block."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 600


@dataclass(frozen=True)
class Server:
    """A server that answers ``/health``."""

    url: str
    start_seconds: float
    log: Path
    process_id: int
    """Also the id of the session all its processes are in."""

    def log_tail(self) -> str:
        return _tail(self.log)


@contextlib.contextmanager
def vllm_serve(
    model: str | Path,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Start ``vllm serve MODEL ARGUMENTS`` on a free port, wait until it is healthy, and stop it at
    the end.

    Args:
        environment: variables to add to this process's own.

    Raises:
        RuntimeError: the server ended or did not become healthy; the text has the end of its log.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [str(Path(sys.executable).parent / "vllm"), "serve", str(model)]
    command += ["--host", "127.0.0.1", "--port", str(port), *arguments]
    variables = os.environ | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    # The tests' in-process engines are no way to run a server.
    variables.pop("VLLM_ENABLE_V1_MULTIPROCESSING", None)
    variables |= environment or {}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        started = time.monotonic()
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, env=variables, stdout=sink, stderr=sink, start_new_session=True
            )
        try:
            _wait_until_healthy(url, process, log)
            yield Server(url, time.monotonic() - started, log, process.pid)
        finally:
            _stop(process)


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"vllm serve ended with code {process.returncode}:\n{_tail(log)}")
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"vllm serve is not healthy after {START_SECONDS} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    """The end of a log, and before it the errors it names: the cause comes long before the end."""
    lines = log.read_text(errors="replace").splitlines()
    errors = dict.fromkeys(line for line in lines[:-20] if "Error: " in line)
    return "\n".join([*errors, *lines[-20:]])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end, then make sure that no process of its group is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
