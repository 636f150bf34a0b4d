"""The process of one evaluation, run as a script: `worker.py TASK MODULES`.

It runs in a folder of its own, in which SAEBench finds its datasets and leaves its artifacts.
What went wrong is the last line that it prints; its status is 1.
"""

import os
import shutil
import signal
import sys
import threading
import traceback
from importlib.util import find_spec
from pathlib import Path

FAILED = "evaluation failed: "


def main(task_file: str, modules: str) -> None:
    """Run the evaluation.

    Args:
        task_file: What to run, written by `Task.write`. The result will lie beside it.
        modules: A folder of its own for links to SAEBench's modules.

    Raises:
        SystemExit: With 1, if it fails.
    """
    from sae_lens_c2r._support.errors import UserError, one_line

    _end_with_the_parent()
    try:
        _own_sae_bench(Path(modules))
        _run(Path(task_file))
    except BaseException as error:  # out of memory among them
        traceback.print_exc()
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        print(f"{FAILED}{kind}{one_line(error)}", file=sys.stderr, flush=True)
        raise SystemExit(1) from None


def _run(task_file: Path) -> None:
    from sae_lens_c2r._support.errors import UserError
    from sae_lens_c2r.evaluation.catalog import KNOWN_FEATURES, SAE_LENS
    from sae_lens_c2r.evaluation.hashing import config_sha256, weights_sha256
    from sae_lens_c2r.evaluation.results import RESULT
    from sae_lens_c2r.evaluation.tasks import Task

    task, result = Task.read(task_file), task_file.with_name(RESULT)
    asked = task.about.asked
    sae = task.source.load_for_inference(task.about.device)
    loaded = weights_sha256(sae), config_sha256(sae.cfg)
    if loaded != (asked.weights_sha256, asked.config_sha256):
        raise UserError(f"{task.source.name} has changed since the evaluation was planned.")
    sae.cfg.metadata.model_name = asked.model
    if asked.evaluation == SAE_LENS:
        from sae_lens_c2r.evaluation.sae_lens_run import run_sae_lens

        run_sae_lens(task, sae, result)
    elif asked.evaluation == KNOWN_FEATURES:
        from sae_lens_c2r.evaluation.features_run import run_known_features

        run_known_features(task, sae, result)
    else:
        from sae_lens_c2r.evaluation.sae_bench_runs import run_sae_bench

        shutil.move(run_sae_bench(task, sae, result.with_name("of-sae-bench")), result)


def _own_sae_bench(modules: Path) -> None:
    """Import SAEBench from links in a folder of this process.

    It caches its absorption probes beside its own files, by the name of a model, and takes
    them again for another model of that name.
    """
    found = find_spec("sae_bench")
    if found is None or found.submodule_search_locations is None:
        return
    original = Path(next(iter(found.submodule_search_locations)))
    shutil.copytree(
        original,
        modules / "sae_bench",
        copy_function=os.symlink,
        ignore=shutil.ignore_patterns("artifacts"),
    )
    sys.path.insert(0, str(modules))


def _end_with_the_parent() -> None:
    """End, with what this process started, when the process that started it has ended."""

    def wait() -> None:
        sys.stdin.read()
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules are not to be imported from here
    main(*sys.argv[1:])
