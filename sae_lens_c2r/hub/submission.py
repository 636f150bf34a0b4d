"""SAEs to publish: where they are, and what was recorded beside them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sae_lens import SAE
from sae_lens.constants import SAE_CFG_FILENAME

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.results import REPORT_FILE, read_report
from sae_lens_c2r.hub.rules import check_names, refuse_secrets
from sae_lens_c2r.releases.model import Release, check_ids
from sae_lens_c2r.saes.origins import allows_derivatives
from sae_lens_c2r.saes.record import RECORD, Evaluation, SAERecord, read_record
from sae_lens_c2r.saes.sae_ref import SAE_FILES, sae_folders

SAEs = Sequence[Path] | Mapping[str, SAE[Any]]
Found = dict[str, tuple[Path, SAERecord]]  # folders by ids, and what training recorded
_FOLDER = "evaluation"


@dataclass(frozen=True)
class Submission:
    """SAEs to publish, and what is known about them beside their own files.

    Args:
        saes: Folders, each with one or more SAEs, or SAEs in memory by their ids.
        release: The release of the SAEs; by default what their `training.json` names.
        evaluation: Their `evaluation.json`; by default those beside the folders.
        license: Licence of the weights, as the Hub spells it; by default the release's.
        base_model: The model that they encode, as the Hub calls it; by default the release's.
        check_secrets: Whether to refuse what looks like a key or a password.

    Raises:
        UserError: If there is no SAE, or the licence or the model is not named as on the Hub.
    """

    saes: SAEs
    release: Release | None = None
    evaluation: Path | None = None
    license: str | None = None
    base_model: str | None = None
    check_secrets: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.saes, Mapping):
            check_ids(self.saes)
        elif not isinstance(self.saes, Sequence) or not all(
            isinstance(each, Path) for each in self.saes
        ):
            raise UserError("saes", "be a list of `Path`", repr(self.saes))
        if not self.saes:
            raise UserError("saes", "be folders, or SAEs by their ids", "none")
        check_names(license=self.license, base_model=self.base_model)


def find_folders(submission: Submission, in_memory: Path) -> Found:
    """Find the folder of each SAE by its id, and what training recorded there."""
    paths: Sequence[Path] = [in_memory]
    if isinstance(submission.saes, Mapping):
        for sae_id, sae in submission.saes.items():
            sae.save_model(in_memory / sae_id)
    else:
        paths = submission.saes
    found: Found = {}
    for path in paths:
        for sae_id, folder, record in _find_in(path, submission):
            if sae_id in found:
                raise UserError(
                    f"The SAEs' ids should differ. Found {sae_id} in {found[sae_id][0]} and in "
                    f"{folder}."
                )
            start = record.started_from
            if submission.license is None and start and not allows_derivatives(start.license):
                forbids = f"{start.license}, which does not allow publishing derivatives"
                reason = f"The SAE started from one under {forbids}. Have its authors agreed?"
                raise UserError("license", f"be given for {sae_id}", more=reason)
            found[sae_id] = folder, record
    if not found:
        shown = ", ".join(map(str, paths))
        raise UserError(f"There should be a folder with a {SAE_CFG_FILENAME}. Found {shown}.")
    check_ids(found)
    return found


def _find_in(root: Path, submission: Submission) -> Iterator[tuple[str, Path, SAERecord]]:
    """Yield the SAEs in a folder, named by their release or by their paths in it."""
    release = submission.release
    if not root.is_dir():
        raise UserError(f"An SAE should be a folder. Found {root}.")
    places = [root.resolve()]
    # In the Hugging Face cache a repository's snapshots are made of links into its own blobs.
    places += [
        place.parent / "blobs"
        for place in (places[0], *places[0].parents)
        if place.name == "snapshots" and place.parent.name.startswith("models--")
    ]
    known = [spec.sae_id for spec in release.saes()] if release else []
    for folder in sae_folders(root):
        for path in (folder, *(folder / name for name in (*SAE_FILES, RECORD))):
            try:
                target = path.resolve(strict=path.is_symlink())
                is_inside = any(target.is_relative_to(place) for place in places)
            except (OSError, RuntimeError):  # it leads to itself, or to nothing
                is_inside = False
            if not is_inside:
                raise UserError(
                    f"A link should not lead out of {root}, unless from a snapshot in the "
                    f"Hugging Face cache into the blobs of the same repository. Found {path}."
                )
        record = read_record(folder)
        found = record.model_dump(mode="json")
        refuse_secrets(folder / RECORD, found, check=submission.check_secrets)
        inside = folder.relative_to(root)
        sae_id = inside.as_posix() if inside.parts else root.resolve().name
        if record.sae_id in known:
            sae_id = record.sae_id
        elif release and sae_id not in known:
            raise UserError(
                f"An SAE of {release.name} should be one of {', '.join(known)}. Found {sae_id} "
                f"in {folder}."
            )
        yield sae_id, folder, record


def known_evaluations(submission: Submission) -> list[SAERecord]:
    """Read what `sae-lens-c2r evaluate` has measured, where it may have left that."""
    files = [submission.evaluation] if submission.evaluation else []
    if not files:
        folders = [] if isinstance(submission.saes, Mapping) else submission.saes
        places = [
            place
            for folder in folders
            for place in (folder, folder / _FOLDER, folder.resolve().parent / _FOLDER)
        ]
        files = [place / REPORT_FILE for place in (*places, Path(_FOLDER))]
        files = [path for path in files if path.is_file()]
    known: list[SAERecord] = []
    measured: dict[tuple[str | None, ...], tuple[Path, Evaluation]] = {}  # of what, and where
    for path in dict.fromkeys(map(Path.resolve, files)):
        report = read_report(path)
        found = report.model_dump(mode="json")
        refuse_secrets(path, found, check=submission.check_secrets)
        known += report.saes
        for sae in report.saes:
            for name, evaluation in sae.evaluations.items():
                key = (sae.weights_sha256, sae.config_sha256, name)
                other, before = measured.setdefault(key, (path, evaluation))
                if other != path and not _agree(before.metrics, evaluation.metrics):
                    numbers = f"other numbers of {name} for {sae.name}"
                    advice = "Name one by `--evaluation`."
                    raise UserError(path, f"agree with {other}", numbers, advice)
    return known


def _agree(numbers: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Whether two measurements differ by rounding alone, as on another device."""
    shared = numbers.keys() & others.keys()  # a later version has more of them
    return all(math.isclose(numbers[key], others[key], rel_tol=1e-3) for key in shared)
