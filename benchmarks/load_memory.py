"""Peak memory of a server."""

import contextlib
import threading
from pathlib import Path
from types import TracebackType

PERIOD_SECONDS = 0.5
GIB = 1 << 30


class PeakMemory:
    """Samples the resident memory of all processes of a session while a `with` block runs.

    A page that several processes share, as the code of torch, counts once for each.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        self.peak = 0
        """Bytes, since the last :meth:`reset`."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "PeakMemory":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def reset(self) -> None:
        self.peak = 0

    def _sample(self) -> None:
        while not self._ended.wait(PERIOD_SECONDS):
            self.peak = max(self.peak, resident_bytes(self.session))


def resident_bytes(session: int) -> int:
    """Sum over the processes of a session."""
    total = 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        # A process may end between two reads.
        with contextlib.suppress(OSError):
            # The command, in parentheses, may hold spaces; the session is the fourth field after.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session:
                continue
            status = (folder / "status").read_text().splitlines()
            kib = [line.split()[1] for line in status if line.startswith("VmRSS:")]
            total += sum(map(int, kib)) << 10
    return total
