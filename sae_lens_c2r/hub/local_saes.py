"""SAEs on this machine: found, checked, redacted, and seen to load in SAELens alone."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitOperationAdd
from sae_lens import SAE, BatchTopKTrainingSAE, TrainingSAE
from sae_lens.constants import (
    ACTIVATION_SCALER_CFG_FILENAME,
    SAE_CFG_FILENAME,
    SAE_WEIGHTS_FILENAME,
)
from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r.evaluation.catalog import WEIGHTS
from sae_lens_c2r.evaluation.hashing import config_sha256, weights_sha256
from sae_lens_c2r.evaluation.report import REPORT_FILE, Evaluation, read_report, weights_metrics
from sae_lens_c2r.hub.facts import RepoFacts, SAEFacts, sae_facts
from sae_lens_c2r.hub.redaction import redact
from sae_lens_c2r.hub.rules import (
    check_id,
    check_license,
    check_repo_id,
    is_plain,
    read_harmless,
    refuse_nested,
    refuse_places,
    refuse_secrets,
)
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.saes.encoding import (
    contributions,
    encode_in_saelens_alone,
    encodes_alike,
    probe_inputs,
    trained_contributions,
)
from sae_lens_c2r.saes.sae_ref import (
    SAERef,
    allows_derivatives,
    inference_form,
    is_training_form,
    sae_folders,
)
from sae_lens_c2r.training.record import RECORD, RecordedRelease, TrainingRecord, read_record

SAEs = Sequence[Path] | Mapping[str, SAE[Any] | TrainingSAE[Any]]
Evaluations = dict[tuple[str, str], dict[str, Evaluation]]  # by weights and config
_TYPES = ("F64", "F32", "F16", "BF16")
_READ = (SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME, RECORD, ACTIVATION_SCALER_CFG_FILENAME)
_FOLDER = "evaluation"


@dataclass(frozen=True)
class Submission:
    """SAEs to be published, and what is said of them beside their own files.

    Args:
        saes: Folders, each of one SAE or of many, or SAEs in memory by their ids.
        release: The release that they are of; by itself what their `training.json` names.
        evaluation: Their `evaluation.json`; by itself those beside the folders.
        license: Of their weights, as the Hub spells it; by itself the release's.
        base_model: The model that they encode, as the Hub calls it; by itself the release's.

    Raises:
        UserError: If there is none, or the licence or the model is not named as on the Hub.
    """

    saes: SAEs
    release: Release | None = None
    evaluation: Path | None = None
    license: str | None = None
    base_model: str | None = None

    def __post_init__(self) -> None:
        if not self.saes:
            raise UserError("`saes` should be folders, or SAEs by their ids. Found none.")
        if not isinstance(self.saes, Mapping) and (
            isinstance(self.saes, str | Path)
            or not all(isinstance(each, Path) for each in self.saes)
        ):
            raise UserError(f"`saes` should be a list of `Path`. Found {self.saes!r}.")
        check_license(self.license)
        if self.base_model is not None:
            check_repo_id(self.base_model, "base-model")

    @classmethod
    def of(cls, saes: "Submission | SAEs") -> "Submission":
        """Return a submission as it is, or one of SAEs of which nothing more is said."""
        return saes if isinstance(saes, Submission) else cls(saes)

    @property
    def folders(self) -> Sequence[Path]:
        """The folders that were named: none for SAEs in memory."""
        return () if isinstance(self.saes, Mapping) else self.saes


@dataclass
class LocalSAE:
    """An SAE on this machine, and what is found out about it before it is published.

    Args:
        sae_id: Its folder on the Hub.
        folder: Its files as they are published: the redacted config, and the weights.
        record: What training wrote of it, if it was ours.
        trained: What its training form makes of the probe, if it had to be converted.
        stamp: Of the weights' file, which changes if it is written to.
        removed: The keys that were removed from its config.
        inputs: The probe, shape ``[batch, d_in]``.
        sha256: Of its files, by their names, as SAELens alone has loaded them.
        feature_acts: What SAELens alone encodes the probe as, shape ``[batch, d_sae]``, sparse.
        facts: What its card says.
    """

    sae_id: str
    folder: Path
    record: TrainingRecord | None = None
    trained: Tensor | None = None
    stamp: tuple[int, ...] = ()
    removed: list[str] = field(default_factory=list)
    inputs: Tensor = field(init=False)
    sha256: dict[str, str] = field(init=False)
    feature_acts: Tensor = field(init=False)
    facts: SAEFacts = field(init=False)

    @property
    def config(self) -> Path:
        """SAELens's config."""
        return self.folder / SAE_CFG_FILENAME

    @property
    def weights(self) -> Path:
        """SAELens's weights."""
        return self.folder / SAE_WEIGHTS_FILENAME

    def additions(self) -> list[CommitOperationAdd]:
        """Its files for one commit; their content is not read again to be hashed."""
        self.refuse_changed()
        added = []
        for path in (self.config, self.weights):
            addition = CommitOperationAdd(f"{self.sae_id}/{path.name}", path)
            addition.upload_info.sha256 = bytes.fromhex(self.sha256[path.name])
            added.append(addition)
        return added

    def refuse_changed(self) -> None:
        """Raise where the weights are no longer those that were checked."""
        if _stamp(self.weights) != self.stamp:
            raise UserError(
                f"{self.sae_id}/{SAE_WEIGHTS_FILENAME} should stay as it is until it is sent. "
                "It has changed since it was checked."
            )


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:  # it is gone
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def check_saes(
    submission: Submission, scratch: Path, tell: Callable[[str], None] = lambda _: None
) -> list[LocalSAE]:
    """Find SAEs, and see them load, and encode as trained, in SAELens alone."""
    # Weights are read three times: here, and twice there, to be loaded and to be hashed.
    saes = _find(submission, scratch / "converted")
    known = _known_evaluations(submission, tell)
    for number, sae in enumerate(saes, start=1):
        tell(f"Checking {sae.sae_id}, {number} of {len(saes)}.")
        _check_and_stage(sae, scratch / "staged" / sae.sae_id, known, submission.base_model)
    tell("Loading them in SAELens alone.")
    encoded = encode_in_saelens_alone(
        [({"folder": str(sae.folder)}, sae.inputs) for sae in saes]
    )
    for sae, found in zip(saes, encoded, strict=True):
        _check_encoding(sae, found.feature_acts)
        sae.sha256, sae.feature_acts = found.sha256, found.feature_acts.to_sparse()
        digest = {"weights_sha256": sae.sha256[SAE_WEIGHTS_FILENAME]}
        sae.facts = sae.facts.model_copy(update=digest)
    return saes


def repo_facts(submission: Submission, saes: Sequence[LocalSAE], repo_id: str) -> RepoFacts:
    """Gather what is known of SAEs: by the release, or where all training records agree."""
    check_repo_id(repo_id)
    said = RecordedRelease()
    if submission.release is not None:
        said = RecordedRelease.model_validate(submission.release.model_dump(mode="json"))
    elif recorded := [sae.record.release for sae in saes if sae.record and sae.record.release]:
        said = recorded[0] if recorded.count(recorded[0]) == len(saes) else said
    check_license(submission.license or said.license)
    refuse_places("The release's description", said.description or "")
    hub_id = said.language_model.hub_id if said.language_model else None
    hub_id = submission.base_model or hub_id
    return RepoFacts(
        repo_id=repo_id,
        description=said.description,
        license=submission.license or said.license,
        base_models=[hub_id] if hub_id and is_plain(hub_id) and "/" in hub_id else [],
        saes={sae.sae_id: sae.facts for sae in saes},
    )


# Which SAEs there are


def _find(submission: Submission, converted: Path) -> list[LocalSAE]:
    """Find the SAEs, each in its inference form."""
    if isinstance(submission.saes, Mapping):
        found = [
            _convert(check_id(sae_id), sae, converted)
            for sae_id, sae in sorted(submission.saes.items())
        ]
    else:
        folders = _folders_by_id(submission.saes)
        found = [_collect(sae_id, folders[sae_id], converted) for sae_id in sorted(folders)]
    refuse_nested(sae.sae_id for sae in found)
    if submission.license is None:
        for sae in found:
            _check_derivatives(sae)
    release = submission.release
    return [_in_release(sae, release) for sae in found] if release else found


def _folders_by_id(paths: Sequence[Path]) -> dict[str, Path]:
    """Find the folder of each SAE, which goes by its path in one that was named."""
    found: dict[str, Path] = {}
    for path in paths:
        if not path.is_dir():
            raise UserError(f"An SAE should be a folder. Found {path}.")
        for folder in sae_folders(path):
            _check_links(folder, path)
            inside = folder.relative_to(path)
            sae_id = check_id(inside.as_posix() if inside.parts else path.resolve().name)
            if sae_id in found:
                raise UserError(
                    f"The SAEs' ids should differ. Found {sae_id} in {found[sae_id]} and in "
                    f"{folder}."
                )
            found[sae_id] = folder
    if not found:
        shown = ", ".join(map(str, paths))
        raise UserError(f"There should be a folder with a {SAE_CFG_FILENAME}. Found {shown}.")
    return found


def _check_links(folder: Path, root: Path) -> None:
    """Raise where a link leads out of a folder, unless it is one of the Hugging Face cache."""
    # There a repository's snapshots are made of links into its own blobs.
    places = [root.resolve()]
    places += [
        place.parent / "blobs"
        for place in (places[0], *places[0].parents)
        if place.name == "snapshots" and place.parent.name.startswith("models--")
    ]
    for path in (folder, *(folder / name for name in _READ)):
        try:
            inside = any(path.resolve().is_relative_to(place) for place in places)
        except (OSError, RuntimeError):  # it leads to itself
            inside = False
        if not inside:
            raise UserError(
                f"A link should not lead out of {root}, unless from a snapshot in the Hugging "
                f"Face cache into the blobs of the same repository. Found {path}."
            )


def _collect(sae_id: str, folder: Path, converted: Path) -> LocalSAE:
    for name in (SAE_CFG_FILENAME, RECORD):
        if (folder / name).is_file():
            read_harmless(folder / name)  # before anything trusts it
    record = read_record(folder)
    if not is_training_form(folder):
        return LocalSAE(sae_id, folder, record)
    sae = SAERef(folder=folder).load("cpu")
    try:
        return replace(_convert(sae_id, sae, converted), record=record)
    except (RuntimeError, SafetensorError, ValueError) as error:
        raise UserError(f"{folder}: has no inference form. {one_line(error)}") from error


def _convert(sae_id: str, sae: SAE[Any] | TrainingSAE[Any], converted: Path) -> LocalSAE:
    """Write the inference form, and note what the training form makes of the probe."""
    folder = converted / sae_id
    inference = inference_form(sae, fold=isinstance(sae, TrainingSAE))
    inference.save_model(folder)
    trained = None
    if isinstance(sae, TrainingSAE):
        trained = trained_contributions(sae, probe_inputs(inference)).to_sparse()
    return LocalSAE(sae_id, folder, trained=trained)


def _check_derivatives(sae: LocalSAE) -> None:
    """Raise where an SAE was made of one that may not be published when it was changed."""
    start = sae.record.started_from if sae.record else None
    if start is not None and not allows_derivatives(start.license):
        raise UserError(
            f"`license` should be given for {sae.sae_id}: it started from an SAE under "
            f"{start.license}, which does not allow to publish what is made of it. Have its "
            "authors allowed it?"
        )


def _in_release(sae: LocalSAE, release: Release) -> LocalSAE:
    """Name an SAE as its release does: as training recorded it, or as its folder is called."""
    known = [spec.sae_id for spec in release.saes()]
    recorded = sae.record.sae_id if sae.record else None
    for sae_id in (recorded, sae.sae_id):
        if sae_id in known:
            return replace(sae, sae_id=sae_id)
    raise UserError(
        f"An SAE of {release.name} should be one of {', '.join(known)}. Found {sae.sae_id} in "
        f"{sae.folder}."
    )


# Whether they are fit to be published


def _check_and_stage(
    sae: LocalSAE, staged: Path, known: Evaluations, base_model: str | None
) -> None:
    """Check an SAE's files, measure it, and put it in the form in which it is published."""
    weights = sae.weights.resolve()
    sae.stamp = _stamp(weights)
    config = read_harmless(sae.config)
    architecture = config.get("architecture")
    if not isinstance(architecture, str) or architecture not in SAE_CLASS_REGISTRY:
        raise UserError(
            f"{sae.config}: `architecture` should be one that SAELens loads. "
            f"Found {architecture}."
        )
    _check_header(weights, shown=sae.weights)
    loaded = SAERef(folder=sae.folder).load("cpu")
    _check_numbers(loaded, sae.weights, learned=_learns_threshold(config))
    sae.inputs = probe_inputs(loaded)
    measured = _evaluations_of(inference_form(loaded), sae.sae_id, known)
    redacted, sae.removed = redact(config)
    sae.facts = sae_facts(
        redacted, record=sae.record, evaluations=measured, base_model=base_model
    )
    staged.mkdir(parents=True)
    sae.folder = staged
    sae.config.write_text(json.dumps(redacted, indent=1, allow_nan=False) + "\n", "utf-8")
    sae.weights.symlink_to(weights)


def _check_header(weights: Path, *, shown: Path) -> None:
    """Raise unless a file is safetensors of a type of weights, with no words in it."""
    try:
        with safe_open(weights, framework="pt") as file:
            metadata = file.metadata() or {}
            names = file.keys()
            types = {name: file.get_slice(name).get_dtype() for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{shown} should be a safetensors file. {one_line(error)}") from None
    if metadata not in ({}, {"format": "pt"}):
        refuse_secrets(shown, json.dumps(metadata, ensure_ascii=False))
        raise UserError(
            f"{shown} should have no metadata in its header, which would be published. "
            f"Found {', '.join(metadata)}."
        )
    for name, dtype in types.items():
        if dtype not in _TYPES:
            raise UserError(
                f"{shown}: `{name}` should be of one of {', '.join(_TYPES)}. Found {dtype}."
            )


def _check_numbers(sae: SAE[Any] | TrainingSAE[Any], shown: Path, *, learned: bool) -> None:
    """Raise unless the tensors of an SAE have numbers that make sense."""
    for name, tensor in sae.state_dict().items():
        if not tensor.numel():
            continue
        low, high = (number.item() for number in tensor.aminmax())
        if not (math.isfinite(low) and math.isfinite(high)):  # NaN is both of any with one
            raise UserError(f"{shown}: `{name}` should be finite. Found NaN or infinity.")
        if name == "threshold" and low < 0:
            raise UserError(f"{shown}: `threshold` should not be negative.")
        if name == "W_dec" and low == high == 0:
            raise UserError(f"{shown}: `W_dec` should not be 0 everywhere.")
        if name == "threshold" and high == 0 and learned:
            raise UserError(
                f"{shown}: `threshold` should have been learned. It is 0 everywhere."
            )


def _learns_threshold(config: Mapping[str, Any]) -> bool:
    """Whether an SAE is of the BatchTopK family, whose threshold is learned."""
    metadata = config.get("metadata")
    trained_as = metadata.get("training_architecture") if isinstance(metadata, dict) else None
    if not isinstance(trained_as, str) or trained_as not in SAE_TRAINING_CLASS_REGISTRY:
        return False
    return issubclass(SAE_TRAINING_CLASS_REGISTRY[trained_as][0], BatchTopKTrainingSAE)


def _check_encoding(sae: LocalSAE, feature_acts: Tensor) -> None:
    """Raise unless SAELens alone encodes the probe, and as the training form does."""
    if not feature_acts.isfinite().all():
        raise UserError(f"{sae.sae_id} should encode as finite numbers. Found NaN or infinity.")
    if not feature_acts.any():
        raise UserError(
            f"{sae.sae_id} should have latents that fire. Found none that does, even for the "
            f"SAE's own decoder rows with norms of up to {sae.inputs.norm(dim=1).max():,.0f}: "
            "is its threshold right?"
        )
    if sae.trained is None:
        return
    published: SAE[Any] = SAE.load_from_disk(sae.folder)
    found = contributions(feature_acts, published)
    if not encodes_alike(found, sae.trained.to_dense(), dtype=published.dtype):
        share = torch.isclose(found, sae.trained.to_dense(), rtol=1e-3).float().mean()
        raise UserError(
            f"{sae.sae_id} should encode in its inference form as in its training form. "
            f"Found {share:.1%} of the activations alike."
        )


# What was measured of them


def _known_evaluations(submission: Submission, tell: Callable[[str], None]) -> Evaluations:
    """Read what `sae-lens-c2r evaluate` has measured, where it may have left that."""
    if submission.evaluation is not None:
        return _read_evaluations([submission.evaluation])
    here = Path(_FOLDER, REPORT_FILE)
    try:
        known = _read_evaluations([here] if here.is_file() else [])
    except UserError as error:
        tell(f"Not looked at: {error}")
        known = {}
    beside = [
        folder / REPORT_FILE
        for path in submission.folders
        for folder in (path, path / _FOLDER, path.resolve().parent / _FOLDER)
    ]
    files = dict.fromkeys(file.resolve() for file in beside if file.is_file())
    return {**known, **_read_evaluations(files)}


def _read_evaluations(files: Iterable[Path]) -> Evaluations:
    found: Evaluations = {}
    for path in files:
        refuse_secrets(path, path.read_bytes())
        for sae in read_report(path).saes:
            of_sae = found.setdefault((sae.weights_sha256, sae.config_sha256), {})
            for name, evaluation in sae.evaluations.items():
                before = of_sae.setdefault(name, evaluation)
                if before.metrics != evaluation.metrics:
                    raise UserError(
                        f"{path} should not disagree with another {REPORT_FILE}. Found other "
                        f"numbers of {name} for {sae.name}."
                    )
    return found


def _evaluations_of(sae: SAE[Any], name: str, known: Evaluations) -> dict[str, Evaluation]:
    """Return an SAE's evaluations; if nobody has measured its weights, they are now."""
    found = known.get((weights_sha256(sae), config_sha256(sae.cfg)), {})
    if WEIGHTS in found:
        return found
    metrics = weights_metrics(inspect_sae(sae, name))
    versions = package_versions("sae-lens-c2r", "sae-lens", "torch")
    now = Evaluation(metrics=metrics, versions=versions, device="cpu")
    return {**found, WEIGHTS: now}
