"""A process of its own: it is given a line, and answers with lines of JSON.

It is started in a folder that is empty, and ends with the process that started it. What it
prints goes to a log.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from sae_lens_c2r._support.errors import reason

PROGRAM = (
    "import os\n"
    "answers = os.dup(1)\n"  # which nothing else prints to
    "os.dup2(2, 1)\n"
    "from sae_lens_c2r.evaluation.process import main\n"
    "main(answers)\n"
)


def run_process(
    request: str, answered: Callable[[dict[str, Any]], bool], *, working: Path, log: Path
) -> int:
    """Run one until it ends, or `answered` says that an answer is the last; its status."""
    with TemporaryDirectory(dir=working) as inside, log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=inside,
            stdin=subprocess.PIPE,  # closed when this process ends, which ends the other
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=True,
            text=True,
        )
        assert process.stdin, "it is a pipe"
        assert process.stdout, "it is a pipe"
        try:
            process.stdin.write(f"{request}\n")
            process.stdin.flush()
            if not any(answered(json.loads(line)) for line in process.stdout):
                process.wait()
        finally:  # what goes on after its last answer is ended, and what it has started
            with suppress(ProcessLookupError, PermissionError):  # macOS's, where all have ended
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode


def main(answers: int) -> None:
    """Run an evaluation as a process, which writes its answers to a file descriptor."""
    request = sys.stdin.readline()
    Thread(target=_end_with_the_parent, daemon=True).start()
    with open(answers, "w", encoding="utf-8") as out:

        def answer(content: dict[str, Any]) -> None:
            print(json.dumps(content, default=str), file=out, flush=True)

        try:
            from sae_lens_c2r.evaluation.sae_bench import run_request

            run_request(request, answer)
        except BaseException as error:  # of a program that is not ours, and of no memory
            traceback.print_exc()
            answer({"error": reason(error)})
            raise SystemExit(1) from None


def _end_with_the_parent() -> None:
    """End, with what this process started, when the process that started it has ended."""
    sys.stdin.read()
    os.killpg(os.getpgrp(), signal.SIGKILL)
