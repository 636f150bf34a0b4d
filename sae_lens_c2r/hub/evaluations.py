"""The measurements of an SAE: what `evaluation.json` says of it, and what its weights say."""

from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.evaluation.catalog import WEIGHTS
from sae_lens_c2r.evaluation.identity import weights_sha256
from sae_lens_c2r.evaluation.results import GATHERED, read_gathered
from sae_lens_c2r.evaluation.weights import weights_result
from sae_lens_c2r.hub.collect import LocalSAE
from sae_lens_c2r.hub.redact import refuse_secrets
from sae_lens_c2r.hub.weights_file import WeightsFile
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.sources import Source

_FOLDER = "evaluation"


def find_evaluations(paths: list[Path]) -> list[Path]:
    """Where `sae-lens-c2r evaluate` may have left its results.

    Args:
        paths: Folders of SAEs.

    Returns:
        Each `evaluation.json` in them, in a folder `evaluation` in or beside them, or in that
        of the working directory.
    """
    folders = [Path(_FOLDER)]
    for path in paths:
        folders += [path, path / _FOLDER, path.resolve().parent / _FOLDER]
    found = (folder / GATHERED for folder in folders)
    return list(dict.fromkeys(path.resolve() for path in found if path.is_file()))


def evaluations_by_weights(files: list[Path]) -> dict[str, dict[str, Any]]:
    """Read the results of evaluations.

    Args:
        files: Each an `evaluation.json`.

    Returns:
        What they have, evaluations by name, by which weights it was measured of.

    Raises:
        UserError: If one cannot be read, or two disagree.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in files:
        refuse_secrets(path, path.read_bytes())
        for sae in read_gathered(path)["saes"]:
            of_sae = found.setdefault(sae["weights_sha256"], {})
            for name, evaluation in sae["evaluations"].items():
                before = of_sae.setdefault(name, evaluation)
                if before["metrics"] != evaluation["metrics"]:
                    raise UserError(
                        f"{path} should not disagree with another {GATHERED}. Found other "
                        f"numbers of {name} for {sae['name']}."
                    )
    return found


def evaluations_of(
    sae: LocalSAE, weights: WeightsFile, known: Mapping[str, dict[str, Any]]
) -> dict[str, Any]:
    """The evaluations of an SAE; if nobody has measured its weights, they are measured now.

    Args:
        sae: The SAE.
        weights: Its weights.
        known: Of `evaluations_by_weights`.

    Returns:
        Its evaluations by name.

    Raises:
        UserError: If it cannot be loaded to be measured.
    """
    found = known.get(_weights_sha256(weights))
    if found and WEIGHTS in found:
        return found
    loaded = Source(sae.sae_id, sae.folder).load_for_inference("cpu")
    found = found or known.get(weights_sha256(loaded), {})
    if WEIGHTS in found:
        return found
    measured = weights_result(inspect_sae(loaded, sae.sae_id))["eval_result_metrics"]
    versions = {name: version(name) for name in ("sae-lens-c2r", "sae-lens", "torch")}
    return {**found, WEIGHTS: {"metrics": measured, "versions": versions, "device": "cpu"}}


def _weights_sha256(weights: WeightsFile) -> str:
    """What `evaluation.identity.weights_sha256` is of the SAE, if SAELens changes nothing."""
    digest = sha256()
    for name, tensor in sorted(weights.tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
        for piece in weights.pieces(tensor):
            digest.update(piece.view(torch.uint8).numpy().data)
    return digest.hexdigest()
