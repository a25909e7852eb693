"""`vllm bench serve`, many times: one process that imports vLLM once, ten seconds on two cores.

Run as a module it reads a JSON list of arguments a line, gives each to the command's own parser and
main function, and answers each with a line: null, or the error.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

RUN_SECONDS = 900


class BenchClient:
    """The process, from the side of who asks it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "client.log"
        self._start()

    def _start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.load_client"],
                env=os.environ | {"HF_HUB_OFFLINE": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    def __enter__(self) -> "BenchClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def run(self, arguments: Sequence[str]) -> dict[str, Any]:
        """What `vllm bench serve ARGUMENTS --save-result` saves.

        Raises:
            RuntimeError: it failed or hangs, or a request did.
        """
        path = Path(self._folder.name) / "result.json"
        path.unlink(missing_ok=True)
        saving = ["--save-result", "--save-detailed"]
        saving += ["--result-dir", self._folder.name, "--result-filename", path.name]
        assert self._process.stdin is not None
        print(json.dumps([*arguments, *saving]), file=self._process.stdin, flush=True)
        try:
            error = self._answer()
        except RuntimeError:
            # What it may still answer is not the answer to the next question.
            self._process.kill()
            self._process.wait()
            self._start()
            raise
        if error is not None:
            raise RuntimeError(f"vllm bench serve: {error}")
        result = json.loads(path.read_text())
        if result["failed"]:
            first = next(text for text in result["errors"] if text)
            raise RuntimeError(f"{result['failed']} requests failed, the first with: {first}")
        return result

    def _answer(self) -> str | None:
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], RUN_SECONDS)[0]:
            raise RuntimeError(f"vllm bench serve does not end within {RUN_SECONDS} s")
        line = stdout.readline()
        if not line:
            log = self._log.read_text(errors="replace")
            raise RuntimeError(f"the client process ended: {log[-2000:]}")
        return json.loads(line)


def main() -> None:
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as bench_serve
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    # What the command prints goes to the log, beside the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    print("null", file=answers, flush=True)
    for line in sys.stdin:
        error = None
        try:
            bench_serve(parser.parse_args(json.loads(line)))
        except (Exception, SystemExit) as failure:
            error = f"{type(failure).__name__}: {failure}"
        print(json.dumps(error), file=answers, flush=True)


if __name__ == "__main__":
    main()
