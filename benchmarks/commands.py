"""How long commands take, here and at another commit: `python -m benchmarks.commands [COMMIT]`.

`inspect` looks at an SAE of random weights, as large as people have them, and `evaluate` at the
two SAEs of the demo, which has to be run before.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.progress import track
from sae_lens.saes import StandardSAE, StandardSAEConfig

from benchmarks.experiment import Row
from benchmarks.measure import environment
from sae_lens_c2r.reporting.tables import markdown_table
from sae_lens_c2r.saes.record import RECORD

D_SAE, D_IN = 65_536, 2304
DEMO = Path("demo-output")
OUT = Path("benchmarks/results/commands-cpu")
COMMANDS = (
    "inspect {0}/sae --out {1}-report.html",
    "evaluate {0}/demo --out {1}/evaluation",
)


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


def main() -> None:
    """Time each command with this checkout's package, and with that of another commit."""
    parser = ArgumentParser(prog="python -m benchmarks.commands", description=__doc__)
    parser.add_argument("commit", nargs="?", help="whose package is timed, too")
    parser.add_argument("--only", choices=[each.split()[0] for each in COMMANDS])
    options, rows = parser.parse_args(), []
    commit = options.commit
    commands = [each for each in COMMANDS if options.only in (None, each.split()[0])]
    with TemporaryDirectory() as folder:
        scratch, packages = Path(folder), {"this": Path.cwd()}
        torch.manual_seed(0)
        sae = StandardSAE(StandardSAEConfig(d_in=D_IN, d_sae=D_SAE))
        sae.W_dec.data.normal_()
        sae.save_model(scratch / "sae")
        # As anybody's SAEs: other versions do not read our records.
        copytree(DEMO, scratch / "demo", ignore=ignore_patterns(RECORD, "evaluation"))
        if commit:
            packages[commit] = scratch / "checkout"
            worktree = ["git", "worktree", "add", "--detach", str(packages[commit]), commit]
            subprocess.run(worktree, check=True)
        for command in track(commands):
            for of, package in packages.items():
                measured = take(command.format(scratch, scratch / f"of-{of}"), package)
                rows.append({"command": command.split()[0], "commit": of, **measured})
    subprocess.run(["git", "worktree", "prune"], check=True)  # whose folder is gone
    about, command = environment("cpu"), " ".join(["benchmarks.commands", *sys.argv[1:]])
    result = {"command": f"python -m {command}", "environment": about, "rows": rows}
    OUT.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    table = markdown_table(
        list(rows[0]), [[str(cell) for cell in row.values()] for row in rows]
    )
    said = ", ".join(f"{key} {value}" for key, value in about.items())
    OUT.with_suffix(".md").write_text(f"{table}\n\nBy `python -m {command}`: {said}.\n")
    print(table)


if __name__ == "__main__":
    main()
