"""Processes of evaluations: how they are started and ended, and what one of them does.

As a script it is one of them, `worker.py WORKING`: it runs what WORKING/task.json asks in the
folder WORKING/inside, in which SAEBench finds its datasets and leaves its artifacts, and
writes WORKING/result.json. WORKING/.probes leads to the probes that evaluations share. What
went wrong is the last line that it prints; its status is 1.
"""

import os
import signal
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from sae_lens_c2r._support.errors import UserError, reason

TASK, INSIDE = "task.json", "inside"
PROGRAM = __file__
_FAILED = "evaluation failed: "
_PAUSE = 0.05  # seconds until it is asked again whether a process has ended


def run_worker(working: Path, *, log: Path, hours: float, stop: Event) -> None:
    """Run one to its end, or until `stop`; a UserError says in one line what went wrong."""
    latest = time.monotonic() + hours * 3600
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, PROGRAM, str(working)],
            cwd=working / INSIDE,
            stdin=subprocess.PIPE,  # closed when this process ends, which ends the worker
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while process.poll() is None:
            if time.monotonic() > latest:
                raise UserError(f"took more than {hours:g} hours, and was ended.")
            if stop.wait(_PAUSE):
                raise UserError("was stopped.")
    finally:
        with suppress(ProcessLookupError):  # or what it started, if that is all that is left
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        memory = ", perhaps for lack of memory" if name == "SIGKILL" else ""
        raise UserError(f"its process was ended by {name}{memory}.")
    if process.returncode > 0:
        raise UserError(_why(log))


def _why(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    reasons = [line.removeprefix(_FAILED) for line in lines if line.startswith(_FAILED)]
    # SAEBench's core goes on after a failure, and has no other way to tell of it.
    swallowed = [line for line in lines if "Failed to evaluate SAE" in line]
    printed = [line for line in lines if line.strip()]
    return (swallowed or reasons or printed or ["it printed nothing."])[-1]


def main(working: Path) -> None:
    """Run the evaluation of a process."""
    _end_with_the_parent()
    try:
        _run(working)
    except BaseException as error:  # out of memory among them
        traceback.print_exc()
        print(f"{_FAILED}{reason(error)}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None


def _run(working: Path) -> None:
    from sae_lens_c2r._support.remote_code import TRUSTED
    from sae_lens_c2r.evaluation.runners import run_evaluation
    from sae_lens_c2r.evaluation.tasks import Task
    from sae_lens_c2r.saes.hashes import sae_hashes

    task = Task.model_validate_json((working / TASK).read_bytes())
    sae = task.source.load_for_inference(task.device)
    if sae_hashes(sae) != (task.sae.weights_sha256, task.sae.config_sha256):
        raise UserError(f"{task.sae.name} has changed since the evaluation was planned.")
    TRUSTED.set(task.trust_remote_code)
    run_evaluation(task, sae, working)


def _end_with_the_parent() -> None:
    """End, with what this process started, when the process that started it has ended."""

    def wait() -> None:
        sys.stdin.read()
        os.killpg(os.getpgrp(), signal.SIGKILL)

    Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules are not to be imported from here
    main(Path(sys.argv[1]))
