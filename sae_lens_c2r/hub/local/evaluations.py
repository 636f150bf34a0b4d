"""The measurements of an SAE: what `evaluation.json` says of it, and what its weights say."""

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

import torch
from sae_lens import SAE
from sae_lens.constants import SAE_CFG_FILENAME

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.versions import package_versions
from sae_lens_c2r.evaluation.catalog import WEIGHTS
from sae_lens_c2r.evaluation.gathered import GATHERED, EvaluationOfSAE, read_gathered
from sae_lens_c2r.evaluation.identity import config_sha256, weights_sha256
from sae_lens_c2r.evaluation.weights import weights_result
from sae_lens_c2r.hub.local.collect import LocalSAE
from sae_lens_c2r.hub.local.leaks import refuse_secrets
from sae_lens_c2r.hub.local.weights_file import WeightsFile
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.saes.sources import Source

_FOLDER = "evaluation"
Identity = tuple[str, str]  # of the weights, and of the config


def find_evaluations(paths: list[Path]) -> list[Path]:
    """Where `sae-lens-c2r evaluate` may have left its results.

    Args:
        paths: Folders of SAEs.

    Returns:
        Each `evaluation.json` in them, or in a folder `evaluation` in or beside them.
    """
    folders: list[Path] = []
    for path in paths:
        folders += [path, path / _FOLDER, path.resolve().parent / _FOLDER]
    found = (folder / GATHERED for folder in folders)
    return list(dict.fromkeys(path.resolve() for path in found if path.is_file()))


def read_evaluations(files: list[Path]) -> dict[Identity, dict[str, EvaluationOfSAE]]:
    """Read the results of evaluations.

    Args:
        files: Each an `evaluation.json`.

    Returns:
        What they have, evaluations by name, by which SAE it was measured of.

    Raises:
        UserError: If one cannot be read, or two disagree.
    """
    found: dict[Identity, dict[str, EvaluationOfSAE]] = {}
    for path in files:
        refuse_secrets(path, path.read_bytes())
        for sae in read_gathered(path).saes:
            of_sae = found.setdefault((sae.weights_sha256, sae.config_sha256), {})
            for name, evaluation in sae.evaluations.items():
                before = of_sae.setdefault(name, evaluation)
                if before.metrics != evaluation.metrics:
                    raise UserError(
                        f"{path} should not disagree with another {GATHERED}. Found other "
                        f"numbers of {name} for {sae.name}."
                    )
    return found


def evaluations_here(tell: Callable[[str], None]) -> dict[Identity, dict[str, EvaluationOfSAE]]:
    """What `evaluate` has left where it leaves it by itself, if that can be read.

    Args:
        tell: Told why it cannot.

    Returns:
        As of `read_evaluations`.
    """
    path = Path(_FOLDER, GATHERED)
    try:
        return read_evaluations([path] if path.is_file() else [])
    except UserError as error:
        tell(f"Not looked at: {error}")
        return {}


def evaluations_of(
    sae: LocalSAE, weights: WeightsFile, known: Mapping[Identity, dict[str, EvaluationOfSAE]]
) -> dict[str, EvaluationOfSAE]:
    """The evaluations of an SAE; if nobody has measured its weights, they are measured now.

    Args:
        sae: The SAE.
        weights: Its weights.
        known: Of `read_evaluations`.

    Returns:
        Its evaluations by name.

    Raises:
        UserError: If it cannot be loaded, or measured.
    """
    found = known.get(_identity(sae, weights))
    if found and WEIGHTS in found:
        return found
    loaded = Source(sae.sae_id, sae.folder).load_for_inference("cpu")
    found = found or known.get((weights_sha256(loaded), config_sha256(loaded.cfg)), {})
    if WEIGHTS in found:
        return found
    try:
        measured = weights_result(inspect_sae(loaded, sae.sae_id))["eval_result_metrics"]
    except ValueError as error:
        raise UserError(f"{sae.sae_id}: cannot be measured. {error}") from error
    versions = package_versions("sae-lens-c2r", "sae-lens", "torch")
    now = EvaluationOfSAE(metrics=measured, versions=versions, device="cpu")
    return {**found, WEIGHTS: now}


def _identity(sae: LocalSAE, weights: WeightsFile) -> Identity:
    """What `evaluation.identity` says of the SAE, if SAELens changes nothing on loading it."""
    digest = sha256()
    for name, tensor in sorted(weights.tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode())
        for piece in weights.pieces(tensor):
            digest.update(piece.view(torch.uint8).numpy().data)
    config = json.loads((sae.folder / SAE_CFG_FILENAME).read_text(encoding="utf-8"))
    config_class = SAE.get_sae_config_class_for_architecture(config["architecture"])
    try:
        return digest.hexdigest(), config_sha256(config_class.from_dict(config))
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{sae.config} should be a config of SAELens's. {error}") from error
