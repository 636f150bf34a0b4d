"""`--install-completion` has a shell complete the commands, and `python -m` is the command."""

import os
import subprocess
from pathlib import Path

import sae_lens_c2r
from tests.forkserver import FRESH


def run(script: str, home: Path, **more: str) -> str:
    """What a script of bash prints, by a user who has this home."""
    environment = {**os.environ, "HOME": str(home), **more}
    command = ["bash", "-eu", "-c", f"{script}\ntrue"]  # bash stays the parent process
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    said = run(f"{FRESH} -m sae_lens_c2r --install-completion", tmp_path)
    assert "bash completion installed" in said
    command = tmp_path / "sae-lens-c2r"
    command.write_text(f'#!/bin/sh\nexec {FRESH} -m sae_lens_c2r "$@"\n')
    command.chmod(0o755)
    script = """
    . "$HOME/.bashrc"
    complete -p sae-lens-c2r
    complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); """
    script += """_sae_lens_c2r_completion sae-lens-c2r; echo "${COMPREPLY[@]}"; }
    complete_line sae-lens-c2r re
    complete_line sae-lens-c2r upload --dry
    complete_line sae-lens-c2r train minilm
    """
    output = run(script, tmp_path, PATH=f"{tmp_path}:{os.environ['PATH']}")
    _, commands, options, releases = output.splitlines()
    assert set(commands.split()) == {"registry"}
    assert options.split() == ["--dry-run"]
    assert releases.split() == ["minilm-layer-3"]


def test_python_m_is_the_command(tmp_path: Path) -> None:
    said = run(f"{FRESH} -m sae_lens_c2r --version", tmp_path)
    assert said == f"sae-lens-c2r {sae_lens_c2r.__version__}\n"
    assert "Usage: sae-lens-c2r" in run(f"{FRESH} -m sae_lens_c2r --help", tmp_path)
