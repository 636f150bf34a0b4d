"""Processes of evaluations: how they are started and ended, and what one of them does.

As a script it is one of them, `worker.py WORKING`: it evaluates the SAEs of WORKING/tasks.json
in turn in the folder WORKING/inside, in which SAEBench leaves its artifacts, and writes
WORKING/KEY.json for each. At the first that fails it ends with status 1; the last line that it
prints has the parts of a UserError.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Generator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from sae_lens_c2r._support.errors import UserError, reason

TASKS, INSIDE = "tasks.json", "inside"
PROGRAM = __file__
_FAILED = "evaluation failed: "
# Of what is downloaded. The Hub's client takes them from where a process runs.
_CACHES = (
    *("HF_HOME", "HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ASSETS_CACHE"),
    "XDG_CACHE_HOME",
)
_PAUSE = 0.05  # seconds until it is asked again what a process has done


def run_worker(
    working: Path, logs: Mapping[str, Path], *, hours: float, stop: Event
) -> Generator[tuple[Path, float], None, None]:
    """Run one until it ends or `stop`: SAEs' results at once, and each one's seconds."""
    waiting, begun = list(logs), time.monotonic()
    with logs[waiting[0]].open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, PROGRAM, str(working)],
            cwd=working / INSIDE,
            env={**os.environ, **_caches()},
            stdin=subprocess.PIPE,  # closed when this process ends, which ends the worker
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        has_ended = False
        while waiting and not has_ended:  # what goes on after its last result is ended
            has_ended = process.poll() is not None  # asked before the last result is looked for
            while waiting and (result := working / f"{waiting[0]}.json").exists():
                seconds, begun = time.monotonic() - begun, time.monotonic()
                waiting.pop(0)
                yield result, round(seconds, 1)
            if waiting and time.monotonic() - begun > hours * 3600:
                raise UserError(f"took more than {hours:g} hours, and was ended.")
            if stop.wait(_PAUSE):
                raise UserError("was stopped.")
    finally:
        with suppress(ProcessLookupError, PermissionError):  # macOS's, where all have ended
            os.killpg(process.pid, signal.SIGKILL)  # it, or what it started and has left
        process.communicate()
    if waiting and process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        memory = ", perhaps for lack of memory" if name == "SIGKILL" else ""
        raise UserError(f"its process was ended by {name}{memory}.")
    if waiting:
        raise _why(logs[waiting[0]])


def _caches() -> dict[str, str]:
    expanded = {name: os.path.expandvars(os.environ.get(name, "")) for name in _CACHES}
    paths = {name: os.path.expanduser(value) for name, value in expanded.items() if value}
    return {name: os.path.abspath(path) for name, path in paths.items()}


def _why(log: Path) -> UserError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    # SAEBench's core goes on after a failure, and has no other way to tell of it.
    swallowed = [line for line in lines if "Failed to evaluate SAE" in line]
    failures = [line.removeprefix(_FAILED) for line in lines if line.startswith(_FAILED)]
    if failures and not swallowed:
        return UserError(*json.loads(failures[-1]))
    printed = [line for line in lines if line.strip()]
    return UserError((swallowed or printed or ["it printed nothing."])[-1])


def main(working: Path) -> None:
    """Run the evaluations of a process."""
    _end_with_the_parent()
    try:
        _run(working)
    except BaseException as error:  # out of memory among them
        traceback.print_exc()
        parts = error.args if isinstance(error, UserError) else [reason(error)]
        print(_FAILED + json.dumps(parts, default=str), file=sys.stderr, flush=True)
        raise SystemExit(1) from None


def _run(working: Path) -> None:
    from pydantic import TypeAdapter

    from sae_lens_c2r._support.remote_code import TRUSTED
    from sae_lens_c2r.evaluation.runners import run_evaluations
    from sae_lens_c2r.evaluation.tasks import Task

    tasks = TypeAdapter(list[Task]).validate_json((working / TASKS).read_bytes())
    TRUSTED.set(tasks[0].trust_remote_code)
    run_evaluations(tasks, working)


def _end_with_the_parent() -> None:
    """End, with what this process started, when the process that started it has ended."""

    def wait() -> None:
        sys.stdin.read()
        os.killpg(os.getpgrp(), signal.SIGKILL)

    Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules are not to be imported from here
    main(Path(sys.argv[1]))
