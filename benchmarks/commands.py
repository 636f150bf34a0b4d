"""How long commands take, here and at another commit: `python -m benchmarks.commands [COMMIT]`.

`inspect` looks at an SAE of random weights, as large as people have them, and `evaluate` at the
two SAEs of the demo, which has to be run before.
"""

import os
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.progress import track
from sae_lens.saes import StandardSAE, StandardSAEConfig

from benchmarks.measure import main
from benchmarks.rows import Row
from sae_lens_c2r.saes.record import RECORD

D_SAE, D_IN = 65_536, 2304
DEMO = Path("demo-output")
COMMANDS = {
    "inspect": "inspect {0}/sae --out {1}-report.html",
    "evaluate": "evaluate {0}/demo --out {1}/evaluation",
}


def take(command: str, package: Path) -> Row:
    """Run a command with the package of a checkout; return its seconds and peak memory."""
    program = [sys.executable, "-m", "sae_lens_c2r", *command.split()]
    variables = {**os.environ, "PYTHONPATH": str(package), "HF_HUB_OFFLINE": "1"}
    where = [sys.executable, "-c", "import sae_lens_c2r; print(sae_lens_c2r.__file__)"]
    there: dict[str, Any] = {"cwd": package, "env": variables}  # Python looks there first
    imported = subprocess.run(where, **there, check=True, capture_output=True, text=True).stdout
    assert Path(imported).is_relative_to(package), imported
    begun = time.perf_counter()
    process = subprocess.Popen(program, **there, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, command
    return {"s": round(time.perf_counter() - begun, 1), "peak_MB": used.ru_maxrss // 1000}


def measure(options: Namespace) -> list[Row]:
    """Time each command with this checkout's package, and with that of another commit."""
    rows, commit = list[Row](), options.commit
    with TemporaryDirectory() as folder:
        scratch, packages = Path(folder), {"this": Path.cwd()}
        torch.manual_seed(0)
        d_sae = D_SAE // 64 if options.quick else D_SAE
        sae = StandardSAE(StandardSAEConfig(d_in=D_IN, d_sae=d_sae))
        sae.W_dec.data.normal_()
        sae.save_model(scratch / "sae")
        # As anybody's SAEs: other versions do not read our records.
        copytree(DEMO, scratch / "demo", ignore=ignore_patterns(RECORD, "evaluation"))
        if commit:
            packages[commit] = scratch / "checkout"
            worktree = ["git", "worktree", "add", "--detach", str(packages[commit]), commit]
            subprocess.run(worktree, check=True)
        for name, command in track(COMMANDS.items()):
            for of, package in packages.items() if options.only in (None, name) else ():
                measured = take(command.format(scratch, scratch / f"of-{of}"), package)
                rows.append({"command": name, "commit": of, **measured})
    subprocess.run(["git", "worktree", "prune"], check=True)  # whose folder is gone
    return rows


if __name__ == "__main__":
    own: dict[str, dict[str, Any]] = {
        "commit": {"nargs": "?", "help": "whose package is timed, too"},
        "--only": {"choices": list(COMMANDS)},
    }
    main("commands", __doc__, measure, devices=["cpu"], arguments=own)
