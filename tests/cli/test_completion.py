"""`--install-completion` has a shell complete the commands, and `python -m` is the command."""

from pathlib import Path

import torch

import sae_lens_c2r
from tests.docs.commands import Shell
from tests.forkserver import FRESH


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    shell = Shell.in_folder(tmp_path, python=FRESH)
    install = "HOME=$PWD python -m sae_lens_c2r --install-completion"
    said = shell.run(f"{install}\ntrue")  # bash stays the parent process
    assert "bash completion installed" in said
    script = """
    . ./.bashrc
    complete -p sae-lens-c2r
    complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); """
    script += """_sae_lens_c2r_completion sae-lens-c2r; echo "${COMPREPLY[@]}"; }
    complete_line sae-lens-c2r re
    complete_line sae-lens-c2r upload --dry
    """
    _, commands, options = shell.run(script).splitlines()
    assert set(commands.split()) == {"registry"}
    assert options.split() == ["--dry-run"]


def test_python_m_is_the_command(tmp_path: Path) -> None:
    shell = Shell.in_folder(tmp_path, python=FRESH)
    said = shell.run("python -m sae_lens_c2r --version")
    assert said.startswith(f"sae-lens-c2r {sae_lens_c2r.__version__}\nsae-lens ")
    assert f"\ntorch {torch.__version__}\n" in said
    assert "Usage: sae-lens-c2r" in shell.run("python -m sae_lens_c2r --help")
