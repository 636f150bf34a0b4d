"""SAEs on this machine: found, checked, redacted, and seen to load in SAELens alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitOperationAdd
from sae_lens import SAE, TrainingSAE
from sae_lens import __version__ as sae_lens_version
from sae_lens.constants import SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME
from sae_lens.loading.pretrained_sae_loaders import handle_config_defaulting
from sae_lens.saes.sae import SAEMetadata
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.files import read_object, write_json
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r.hub.repo_record import RepoRecord, published
from sae_lens_c2r.hub.rules import check_names, is_plain, redact, refuse_places, refuse_secrets
from sae_lens_c2r.hub.submission import Submission, find_folders, known_evaluations
from sae_lens_c2r.inspection.measures import measure
from sae_lens_c2r.saes.encoding import (
    Encoded,
    contributions,
    contributions_here,
    encode_in_saelens_alone,
    encodes_alike,
    probe_inputs,
)
from sae_lens_c2r.saes.hashes import earlier_config_hash, sae_hashes
from sae_lens_c2r.saes.origins import check_weights
from sae_lens_c2r.saes.record import HELD_OUT, TRAINING, WEIGHTS, Evaluation, SAERecord
from sae_lens_c2r.saes.sae_ref import SAERef, check_scaled, inference_form
from sae_lens_c2r.saes.start_from import NEEDS_ESTIMATE

_TYPES = ("F64", "F32", "F16", "BF16")


@dataclass
class LocalSAE:
    """An SAE as it is published, and what was found out about it."""

    sae_id: str  # its folder on the Hub
    folder: Path  # of its redacted config, and a link to its weights
    found: SAERecord  # what was recorded of it here
    record: SAERecord  # of that, what may be published
    removed: list[str]  # the keys that were removed from its config
    stamp: tuple[int, ...]  # of the weights' file, which changes if it is written to
    inputs: Tensor  # the probe, shape [batch, d_in]
    expected: Tensor  # what it makes of the probe as it is here, shape [batch, d_sae], sparse
    # As SAELens alone has loaded its files, and encoded the probe, shape [batch, d_sae], sparse
    sha256: dict[str, str] = field(init=False)
    feature_acts: Tensor = field(init=False)

    def additions(self) -> list[CommitOperationAdd]:
        """Its files for one commit; their content is not read again to be hashed."""
        self.refuse_changed()
        added = []
        for name in (SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME):
            addition = CommitOperationAdd(f"{self.sae_id}/{name}", self.folder / name)
            addition.upload_info.sha256 = bytes.fromhex(self.sha256[name])
            added.append(addition)
        return added

    def refuse_changed(self) -> None:
        """Raise where the weights are no longer those that were checked."""
        if _stamp(self.folder / SAE_WEIGHTS_FILENAME) != self.stamp:
            weights = Path(self.sae_id, SAE_WEIGHTS_FILENAME)
            raise UserError(weights, "not change during an upload", "a file that has changed")


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:  # it is gone
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns)


def check_saes(
    submission: Submission, scratch: Path, tell: Callable[[str], None] = lambda _: None
) -> list[LocalSAE]:
    """Find SAEs, and check that SAELens alone loads them and encodes as in training."""
    # Weights are read four times: here, there to be loaded and to be hashed, and here again.
    found = find_folders(submission, scratch / "in-memory")
    known = known_evaluations(submission)
    saes: list[LocalSAE] = []
    for sae_id, (folder, record) in sorted(found.items()):
        tell(f"Checking {sae_id}, {len(saes) + 1} of {len(found)}.")
        saes.append(_check(sae_id, folder, record, scratch, known, submission))
        if lost := saes[-1].record.outdated:
            again = "" if lost == [HELD_OUT] else " Run `sae-lens-c2r evaluate` again."
            tell(
                f"Warning: {', '.join(lost)} of {sae_id} is left out of the card: measured of "
                f"other weights or another config.{again}"
            )
    bare = [
        each.sae_id
        for each in saes
        if not (each.record.outdated or each.record.evaluations.keys() - {WEIGHTS, TRAINING})
    ]
    if bare:
        tell(
            f"Warning: the card has numbers of the weights alone for {', '.join(bare)}, of "
            "which no evaluation.json was found. Run `sae-lens-c2r evaluate`, or name its file "
            "by `--evaluation`."
        )
    tell("Loading the SAEs in SAELens alone.")
    requests = [({"folder": str(sae.folder)}, sae.inputs) for sae in saes]
    for sae, encoded in zip(saes, encode_in_saelens_alone(requests), strict=True):
        _check_encoding(sae, encoded)
        sae.sha256, sae.feature_acts = encoded.sha256, encoded.feature_acts.to_sparse()
        digest = {"file_sha256": sae.sha256[SAE_WEIGHTS_FILENAME]}
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
    description = agreed("description")
    license = submission.license or agreed("license")
    if license is None:
        tell("Warning: without a licence nobody may use the SAEs. Set one by `--license`.")
    sources = [release.source.model_dump() if release else sae.found.source for sae in saes]
    model, *others = {source.get("hub_id") for source in sources}
    if others or any(model in (sae.found.from_disk or ()) for sae in saes):
        model = None
    model = submission.base_model or model
    check_names(repo_id=repo_id, license=license)
    refuse_places("The release's description", description or "")
    return RepoRecord(
        repo_id=repo_id,
        description=description,
        license=license,
        base_models=[model] if model and "/" in model and is_plain(model) else [],
        saes={sae.sae_id: sae.record for sae in saes},
    )


def _check(
    sae_id: str,
    folder: Path,
    found: SAERecord,
    scratch: Path,
    known: Sequence[SAERecord],
    submission: Submission,
) -> LocalSAE:
    """Check an SAE's files, measure it, and write it in the form in which it is published."""
    weights = folder / SAE_WEIGHTS_FILENAME
    shown = Path(sae_id) if folder.is_relative_to(scratch) else folder  # which errors name
    stamp, origin = _stamp(weights), folder.resolve()
    said = read_object(folder / SAE_CFG_FILENAME)
    if said.get("architecture") == "temporal":
        should = "be of an SAE that encodes token by token to be published"
        raise UserError(folder / SAE_CFG_FILENAME, should, "a temporal SAE")
    _check_header(weights)
    sae = SAERef(folder=folder).load("cpu")
    check_scaled(sae, of=shown / SAE_CFG_FILENAME)
    as_here, is_trained = sae, isinstance(sae, TrainingSAE)
    scaled = said.get("normalize_activations")
    is_old = not is_trained and handle_config_defaulting(said) != said
    if is_old:  # of SAELens before 6: what it says has other places now
        metadata = {**sae.cfg.metadata.to_dict(), **said.get("metadata", {})}
        sae.cfg.metadata = SAEMetadata(**{**metadata, "sae_lens_version": sae_lens_version})
    if is_trained or is_old or scaled in NEEDS_ESTIMATE:  # its files are of another form
        folder = scratch / "converted" / sae_id
        try:
            sae = inference_form(sae, fold=is_trained)
            weights, _ = map(Path, sae.save_model(folder))
            stamp = _stamp(weights)
        except (RuntimeError, SafetensorError, ValueError) as error:
            raise UserError(f"{shown}: has no inference form. {one_line(error)}") from error
    weights = weights.resolve()
    config = read_object(folder / SAE_CFG_FILENAME)
    refuse_secrets(shown / SAE_CFG_FILENAME, config, check=submission.check_secrets)
    of_disk = found.with_config(config).names_of_disk
    redacted, removed = redact(config, of_disk)
    check_weights(sae, shown / SAE_WEIGHTS_FILENAME, published=True)
    inputs = probe_inputs(sae)  # before its norms are folded, if they are
    expected = contributions_here(as_here, inputs).to_sparse()
    form = inference_form(sae)
    complete = _with_evaluations(found.with_config(redacted), sae_id, origin, form, known)
    record = published(complete, base_model=submission.base_model, of_disk=of_disk)
    staged = scratch / "staged" / sae_id
    staged.mkdir(parents=True)
    write_json(staged / SAE_CFG_FILENAME, redacted)
    (staged / SAE_WEIGHTS_FILENAME).symlink_to(weights)
    return LocalSAE(sae_id, staged, found, record, removed, stamp, inputs, expected)


def _with_evaluations(
    record: SAERecord, sae_id: str, origin: Path, form: SAE[Any], known: Sequence[SAERecord]
) -> SAERecord:
    """The record of an SAE with what was measured of its weights and its config."""
    weights_sha256, *hashes = *sae_hashes(form), earlier_config_hash(form)
    places = [(each, Path(each.name or "").resolve()) for each in known]
    places.sort(key=lambda each: each[1] == origin)  # what was measured in its place counts
    own = [each for each, _ in places if each.weights_sha256 == weights_sha256]
    own = [each for each in own if each.config_sha256 in hashes]
    evaluations = {name: of for each in own for name, of in each.evaluations.items()}
    recorded = record.evaluations
    if record.weights_sha256 not in (None, weights_sha256):  # they have changed since
        recorded = {name: of for name, of in recorded.items() if name == TRAINING}
    # What was evaluated in its place may have changed since; in another, it is another SAE,
    # unless nothing is left there, as after a folder was renamed.
    others = [
        each
        for each, at in places
        if at == origin or (at.as_posix().endswith(f"/{sae_id}") and _is_gone(each.name))
    ]
    measured = {name for each in (record, *others) for name in each.evaluations}
    if WEIGHTS not in evaluations:
        metrics = measure(form, sae_id).numbers
        versions = package_versions("sae-lens-c2r", "sae-lens", "torch")
        evaluations[WEIGHTS] = Evaluation(metrics=metrics, versions=versions, device="cpu")
    return record.model_copy(
        update={
            "weights_sha256": weights_sha256,
            "config_sha256": hashes[0],
            "evaluations": {**recorded, **evaluations},
            "outdated": sorted(measured - {*recorded, *evaluations}),
        }
    )


def _is_gone(name: str | None) -> bool:
    """Whether an SAE's name is of a folder that is not there: a release's has a blank."""
    is_folder = name is not None and (" " not in name or Path(name).is_absolute())
    return is_folder and not Path(str(name)).exists()


def _check_header(weights: Path) -> None:
    """Raise unless a file is safetensors of a type of weights, with no words in it."""
    try:
        with safe_open(weights, framework="pt") as file:
            metadata, names = file.metadata() or {}, file.keys()
            types = {name: file.get_slice(name).get_dtype() for name in names}
    except (OSError, SafetensorError) as error:
        raise UserError(weights, "be a safetensors file", more=one_line(error)) from None
    wrong = [f"`{name}`: {dtype}" for name, dtype in types.items() if dtype not in _TYPES]
    wrong += [f"metadata `{key}`" for key in metadata if metadata != {"format": "pt"}]
    if wrong:
        without = "and no metadata in its header, which would be published"
        raise UserError(
            weights, f"have tensors of {', '.join(_TYPES)}, {without}", ", ".join(wrong)
        )


def _check_encoding(sae: LocalSAE, encoded: Encoded) -> None:
    """Raise unless SAELens alone encodes the probe, and as the training form does."""
    if not encoded.feature_acts.isfinite().all():
        raise UserError(f"{sae.sae_id} should encode to finite numbers. Found NaN or infinity.")
    if not encoded.feature_acts.any():
        raise UserError(
            f"{sae.sae_id} should have latents that fire. Found none, even on the SAE's own "
            f"decoder rows with norms of up to {sae.inputs.norm(dim=1).max():,.0f}. Is the "
            "threshold right?"
        )
    published: SAE[Any] = SAE.load_from_disk(sae.folder)
    found, expected = contributions(encoded.feature_acts, published), sae.expected.to_dense()
    if not encodes_alike(found, expected, dtype=published.dtype):
        share = torch.isclose(found, expected, rtol=1e-3).float().mean()
        raise UserError(
            f"{sae.sae_id} should encode the same as here once it is published. "
            f"Found {share:.1%} of the activations alike."
        )
    published.turn_off_forward_pass_hook_z_reshaping()  # type: ignore[no-untyped-call]
    with torch.no_grad():
        # Of zeros, as the probe is so large that float16 may overflow.
        reconstruction = published(torch.zeros_like(sae.inputs[:1], dtype=published.dtype))
    if reconstruction.isnan().any():  # where SAELens divides by the norms of decoder rows
        advice = "Has its decoder a row of zeros?"
        raise UserError(f"{sae.sae_id} should reconstruct numbers. Found NaN. {advice}")
