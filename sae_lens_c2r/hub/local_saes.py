"""SAEs on this machine: found, checked, redacted, and seen to load in SAELens alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from sae_lens.constants import SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME
from safetensors.torch import load_file, save_file
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import read_object, sha256_of, write_json
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r.evaluation.results import REPORT_FILE, read_report
from sae_lens_c2r.hub.allow_list import check_names, redact, refuse_secrets
from sae_lens_c2r.hub.repo_record import RepoRecord, published
from sae_lens_c2r.inspection.measures import measure
from sae_lens_c2r.models.reading import ADDED
from sae_lens_c2r.releases.model import Release, check_ids
from sae_lens_c2r.saes.encoding import (
    contributions,
    contributions_here,
    encode_in_saelens_alone,
    encodes_alike,
    probe_inputs,
)
from sae_lens_c2r.saes.hashes import sae_hashes
from sae_lens_c2r.saes.origins import check_weights
from sae_lens_c2r.saes.record import WEIGHTS, Evaluation, SAERecord, read_record
from sae_lens_c2r.saes.sae_ref import SAERef, check_scaled, inference_form, sae_folders
from sae_lens_c2r.saes.start_from import NEEDS_ESTIMATE

Found = dict[str, tuple[Path, SAERecord]]  # folders by ids, and what training recorded
# What was measured, by the hashes of weights and of what else decides what an SAE computes.
Measured = dict[tuple[str | None, str | None], dict[str, Evaluation]]
_FOLDER = "evaluation"


@dataclass(frozen=True)
class Submission:
    """SAEs to publish, and what is known about them beside their own files.

    Args:
        saes: Folders, each with one or more SAEs.
        release: The release of the SAEs; by default what their `training.json` names.
        evaluation: Their `evaluation.json`; by default those beside the folders.
        license: Licence of the weights, as the Hub spells it; by default the release's.
        base_model: The model that they encode, as the Hub calls it; by default the release's.

    Raises:
        UserError: If there is no SAE, or the licence or the model is not named as on the Hub.
    """

    saes: Sequence[Path]
    release: Release | None = None
    evaluation: Path | None = None
    license: str | None = None
    base_model: str | None = None

    def __post_init__(self) -> None:
        if not self.saes:
            raise UserError("saes", "be folders of SAEs", "none")
        check_names(license=self.license, base_model=self.base_model)


@dataclass
class LocalSAE:
    """An SAE as it is published, and what was found out about it."""

    sae_id: str  # its folder on the Hub
    folder: Path  # of its files as they are sent, which nobody else writes to
    found: SAERecord  # what was recorded of it here
    record: SAERecord  # of that, what may be published
    removed: list[str]  # the keys that were removed from its config


def check_saes(
    submission: Submission, scratch: Path, tell: Callable[[str], None] = lambda _: None
) -> list[LocalSAE]:
    """Find SAEs, and check that SAELens alone loads them and encodes as in training."""
    found = find_folders(submission)
    measured = measurements(submission)
    saes: list[LocalSAE] = []
    requests: list[tuple[Path, Tensor]] = []
    expected: list[Tensor] = []
    for sae_id, (folder, record) in sorted(found.items()):
        tell(f"Checking {sae_id}, {len(saes) + 1} of {len(found)}.")
        sae, inputs, encoding = _check(sae_id, folder, record, scratch, measured, submission)
        saes.append(sae)
        requests.append((sae.folder, inputs))
        expected.append(encoding)
    if bare := [s.sae_id for s in saes if s.record.evaluations.keys() <= {WEIGHTS}]:
        tell(
            f"Warning: the card has numbers of the weights alone for {', '.join(bare)}: no "
            "evaluation.json is of these weights. Run `sae-lens-c2r evaluate`, or name its "
            "file by `--evaluation`."
        )
    tell("Loading the SAEs in SAELens alone.")
    alone = encode_in_saelens_alone(requests)
    for sae, feature_acts, here in zip(saes, alone, expected, strict=True):
        _check_encoding(sae, feature_acts, here.to_dense())
        digest = {"file_sha256": sha256_of(sae.folder / SAE_WEIGHTS_FILENAME)}
        sae.record = sae.record.model_copy(update=digest)
    return saes


def repo_record(
    submission: Submission,
    saes: Sequence[LocalSAE],
    repo_id: str | None,
    tell: Callable[[str], None] = lambda _: None,
) -> RepoRecord:
    """Gather what is known of SAEs: by the release, or where all training records agree."""
    release = submission.release

    def agreed(name: str) -> str | None:
        values = {getattr(release or sae.found, name) for sae in saes}
        return values.pop() if len(values) == 1 else None

    repo_id = repo_id or agreed("repo_id")
    if repo_id is None:
        raise UserError("repo_id", "be given, like org/name, where no release names one")
    license = submission.license or agreed("license")
    if license is None:
        tell("Warning: without a licence nobody may use the SAEs. Set one by `--license`.")
    check_names(repo_id=repo_id, license=license)
    models = {sae.record.model for sae in saes if sae.record.model}
    return RepoRecord(
        repo_id=repo_id,
        description=agreed("description"),
        license=license,
        base_models=sorted(model for model in models if "/" in model),
        saes={sae.sae_id: sae.record for sae in saes},
    )


def find_folders(submission: Submission) -> Found:
    """Find the folder of each SAE by its id, and what training recorded there."""
    found: Found = {}
    for path in submission.saes:
        for sae_id, folder, record in _find_in(path, submission.release):
            if sae_id in found:
                raise UserError(
                    f"The SAEs' ids should differ. Found {sae_id} in {found[sae_id][0]} and in "
                    f"{folder}."
                )
            found[sae_id] = folder, record
    if not found:
        shown = ", ".join(map(str, submission.saes))
        raise UserError(f"There should be a folder with a {SAE_CFG_FILENAME}. Found {shown}.")
    check_ids(found)
    return found


def _find_in(root: Path, release: Release | None) -> Iterator[tuple[str, Path, SAERecord]]:
    """Yield the SAEs in a folder, named by their release or by their paths in it."""
    known = [spec.sae_id for spec in release.saes()] if release else []
    home = root.resolve()
    # In the Hugging Face cache, files are links into the blobs of the same repository.
    caches = [place for place in home.parents if place.name.startswith("models--")]
    inside = [home, *(place / "blobs" for place in caches)]
    for folder in sae_folders(root):
        for path in (folder, *folder.iterdir()):
            if not any(map(path.resolve().is_relative_to, inside)):  # nobody has named that
                raise UserError(f"A link should not lead out of {root}. Found {path}.")
        record = read_record(folder)
        sae_id = folder.relative_to(root).as_posix()
        if sae_id == ".":
            sae_id = home.name
        if record.sae_id in known:
            sae_id = record.sae_id
        elif release and sae_id not in known:
            raise UserError(
                f"An SAE of {release.name} should be one of {', '.join(known)}. Found {sae_id} "
                f"in {folder}."
            )
        yield sae_id, folder, record


def measurements(submission: Submission) -> Measured:
    """Read what `sae-lens-c2r evaluate` has measured: what lies nearest to the SAEs counts."""
    files = [submission.evaluation] if submission.evaluation else []
    if not files:
        places = [
            place
            for folder in submission.saes
            for place in (folder, folder / _FOLDER, folder.resolve().parent / _FOLDER)
        ]
        files = [place / REPORT_FILE for place in (*places, Path(_FOLDER))]
        files = [path for path in files if path.is_file()]
    measured: Measured = {}
    for path in files:
        for sae in read_report(path).saes:
            known = measured.setdefault((sae.weights_sha256, sae.config_sha256), {})
            known |= {**sae.evaluations, **known}
    return measured


def _check(
    sae_id: str,
    folder: Path,
    found: SAERecord,
    scratch: Path,
    measured: Measured,
    submission: Submission,
) -> tuple[LocalSAE, Tensor, Tensor]:
    """Write an SAE as it is published; a probe, and what the SAE makes of it as it is here."""
    config = read_object(folder / SAE_CFG_FILENAME)
    as_here = sae = SAERef(folder=folder).load("cpu")
    check_scaled(sae, of=folder / SAE_CFG_FILENAME)
    is_trained = isinstance(sae, TrainingSAE)
    if is_trained or config.get("normalize_activations") in NEEDS_ESTIMATE:
        folder = scratch / "converted" / sae_id
        sae = inference_form(sae, fold=is_trained)
        sae.save_model(folder)
        config = read_object(folder / SAE_CFG_FILENAME)
    check_weights(sae, sae_id, published=True)
    said = sae.cfg.metadata  # with what the record of training says of how text is read
    config["metadata"] |= {key: said[key] for key in ADDED if key in said}
    redacted, removed = redact(config, found.from_disk)
    staged = scratch / "staged" / sae_id
    staged.mkdir(parents=True)
    write_json(staged / SAE_CFG_FILENAME, redacted)
    refuse_secrets(f"{sae_id}/{SAE_CFG_FILENAME}", (staged / SAE_CFG_FILENAME).read_text())
    # Written anew, for a header without words of others, and a file that stays as it is.
    save_file(load_file(folder / SAE_WEIGHTS_FILENAME), staged / SAE_WEIGHTS_FILENAME)
    inputs = probe_inputs(sae)  # before its norms are folded, if they are
    expected = contributions_here(as_here, inputs).to_sparse()
    complete = _with_evaluations(found.with_config(redacted), inference_form(sae), measured)
    record = published(complete, base_model=submission.base_model)
    return LocalSAE(sae_id, staged, found, record, removed), inputs, expected


def _with_evaluations(record: SAERecord, form: SAE[Any], measured: Measured) -> SAERecord:
    """The record of an SAE with what was measured of its weights and its config."""
    weights_sha256, config_sha256 = sae_hashes(form)
    own = measured.get((weights_sha256, config_sha256), {})
    evaluations = dict(own)  # and none of the record of training, whose weights may be others
    if WEIGHTS not in evaluations:
        metrics = measure(form, "").numbers
        versions = package_versions("sae-lens-c2r", "sae-lens", "torch")
        evaluations[WEIGHTS] = Evaluation(metrics=metrics, versions=versions, device="cpu")
    hashes = {"weights_sha256": weights_sha256, "config_sha256": config_sha256}
    return record.model_copy(update={**hashes, "evaluations": evaluations})


def _check_encoding(sae: LocalSAE, feature_acts: Tensor, expected: Tensor) -> None:
    """Raise unless SAELens alone encodes a probe, and as the SAE does here."""
    if not feature_acts.any():
        should = "have latents that fire on its own decoder rows"
        raise UserError(f"{sae.sae_id} should {should}. Found none. Is the threshold right?")
    published: SAE[Any] = SAE.load_from_disk(sae.folder)
    found = contributions(feature_acts, published)
    if not encodes_alike(found, expected, dtype=published.dtype):
        share = torch.isclose(found, expected, rtol=1e-3).float().mean()
        raise UserError(
            f"{sae.sae_id} should encode the same as here once it is published. "
            f"Found {share:.1%} of the activations alike."
        )
