"""A server in the middle of an answer, and how it comes to an end."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil

from tests.server.leaving import long_stream

SECONDS = 60


class Stream:
    """A streamed answer of many steps, read in a thread of its own."""

    def __init__(self, url: str, model: str, max_tokens: int) -> None:
        self.began = threading.Event()
        self.lines: list[str] = []
        self.error: str | None = None
        body = long_stream(model, max_tokens)
        self.thread = threading.Thread(target=self._read, args=(f"{url}/v1/completions", body))
        self.thread.start()

    def _read(self, url: str, body: dict[str, Any]) -> None:
        try:
            with httpx.stream("POST", url, json=body, timeout=SECONDS) as response:
                for line in filter(None, response.iter_lines()):
                    self.lines.append(line)
                    self.began.set()
        except httpx.HTTPError as error:
            self.error = repr(error)

    @property
    def failed(self) -> bool:
        """It was told so, or cut off; a whole answer ends with ``[DONE]`` and no error before."""
        told = any('"error"' in line for line in self.lines)
        return told or self.error is not None or self.lines[-1:] != ["data: [DONE]"]


@contextlib.contextmanager
def streaming(url: str, model: str, max_tokens: int = 250) -> Iterator[Stream]:
    """An answer under way inside the ``with`` block, which must have ended when it ends. It takes a
    step for each token."""
    stream = Stream(url, model, max_tokens)
    assert stream.began.wait(SECONDS), stream.error
    yield stream
    stream.thread.join(SECONDS)
    assert not stream.thread.is_alive(), f"the client still waits after {SECONDS} s"


def assert_ends(process_id: int) -> None:
    """The server's processes are gone, all of them."""
    deadline = time.monotonic() + SECONDS
    while (left := _alive(process_id)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left, f"after {SECONDS} s there are {left}"


def _alive(session: int) -> list[str]:
    found = []
    for process in psutil.process_iter(["name", "status"]):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {process.info['name']}")
    return found
