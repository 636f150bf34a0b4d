"""A shell as readers of the pages have it: our commands are there."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub.constants import HF_ASSETS_CACHE

from tests import forkserver

FEWER_ROWS = (  # for `evaluate`: 1, twice, in place of 32 and 160
    "--set sae_lens.batch_size_prompts=1 --set sae_lens.n_eval_reconstruction_batches=1"
    " --set sae_lens.n_eval_sparsity_variance_batches=1"
)
FEWER_STEPS = " ".join(  # for the release of the demo: 16
    f"--set {change}"
    for change in (
        *("language_model.training_tokens=8192", "sae.d_sae=256", "runner.lr_decay_steps=3"),
        *("runner.n_batches_in_buffer=32", "runner.n_batches_for_norm_estimate=2"),
    )
)
_COMMANDS = {
    "bin/sae-lens-c2r": 'exec {python} -m sae_lens_c2r "$@"',
    "bin/python": 'exec {python} "$@"',
    # A stand-in for an environment without us, for installing takes minutes.
    "plain/bin/python": "export TORCH_DEVICE_BACKEND_AUTOLOAD=0\n"
    """exec {python} -c "import sys; sys.modules['sae_lens_c2r'] = None; $2"\n""",
}


@dataclass(frozen=True)
class Shell:
    """Bash in a folder."""

    folder: Path

    @classmethod
    def in_folder(cls, folder: Path, *, python: str | None = None) -> "Shell":
        """A shell in a new folder."""
        for name, script in _COMMANDS.items():
            command = folder / name
            command.parent.mkdir(parents=True, exist_ok=True)
            program = script.format(python=python or forkserver.python())
            command.write_text("#!/bin/sh\n" + program)
            command.chmod(0o755)
        return cls(folder)

    def run(self, script: str) -> str:
        """What a script prints; it has to succeed."""
        environment = {**os.environ, "HF_HOME": str(self.folder / "home"), "NO_PROXY": "*"}
        environment["HF_ASSETS_CACHE"] = HF_ASSETS_CACHE  # has SmolLM2
        environment["PATH"] = f"{self.folder / 'bin'}:{environment['PATH']}"
        process = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=forkserver.LIMIT,
        )
        assert process.returncode == 0, f"{script}\n{process.stdout}{process.stderr}"
        return process.stdout
