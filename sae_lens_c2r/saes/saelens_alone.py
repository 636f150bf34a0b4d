"""Encode by SAELens in a process that cannot import this package."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from sae_lens_c2r._support.errors import UserError

_SCRIPT = Path(__file__).with_name("encode_alone.py")


@dataclass(frozen=True)
class Encoded:
    """The outcome for an SAE.

    Args:
        feature_acts: What it encodes the inputs as, shape ``[batch, d_sae]``.
        sha256: Of the files that it was loaded from, by their names.
    """

    feature_acts: Tensor
    sha256: dict[str, str]


def encode_in_saelens_alone(
    requests: Sequence[tuple[Mapping[str, str], Tensor]],
    *,
    environment: Mapping[str, str] | None = None,
) -> list[Encoded]:
    """Load SAEs in another process, with SAELens alone, and encode a batch with each."""
    with TemporaryDirectory() as scratch:
        asked = []
        for number, (where, inputs) in enumerate(requests):
            files = {
                "inputs": str(Path(scratch, f"{number}-in.safetensors")),
                "outputs": str(Path(scratch, f"{number}-out.safetensors")),
            }
            save_file({"sae_in": inputs.cpu().contiguous()}, files["inputs"])
            asked.append({**where, **files})
        path = Path(scratch, "requests.json")
        path.write_text(json.dumps(asked), encoding="utf-8")
        process = subprocess.run(
            [sys.executable, str(_SCRIPT), str(path)],
            # PyTorch would refuse to start without the package that an entry point names.
            env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **(environment or {})},
            capture_output=True,
            text=True,
        )
        if process.returncode != 0:
            reason = process.stderr.strip().splitlines()[-1:] or ["It ended without a word."]
            done = sum(Path(request["outputs"]).is_file() for request in asked)
            where = {k: v for k, v in asked[done].items() if k not in ("inputs", "outputs")}
            raise UserError(
                f"SAELens alone does not load {' '.join(where.values())}. {reason[0]}"
            )
        return [_read(request["outputs"]) for request in asked]


def _read(path: str) -> Encoded:
    with safe_open(path, framework="pt") as file:
        return Encoded(file.get_tensor("feature_acts").clone(), dict(file.metadata()))
