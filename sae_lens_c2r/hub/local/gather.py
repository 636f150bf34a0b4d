"""From folders, or SAEs in memory, to what is published of them. Nothing here asks the Hub."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sae_lens import SAE, TrainingSAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.card.content import Content
from sae_lens_c2r.hub.card.facts import Facts
from sae_lens_c2r.hub.local.collect import LocalSAE, collect, collect_saes
from sae_lens_c2r.hub.local.evaluations import (
    evaluations_here,
    find_evaluations,
    read_evaluations,
)
from sae_lens_c2r.hub.local.leaks import is_plain, refuse_places
from sae_lens_c2r.hub.local.prepare import PreparedSAE, prepare
from sae_lens_c2r.hub.names import check_names
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.training.record import RecordedRelease

SAEs = Sequence[Path] | Mapping[str, SAE[Any] | TrainingSAE[Any]]


@dataclass(frozen=True)
class Gathered:
    """SAEs that are ready, and what a repository is to hold of them.

    Args:
        saes: The SAEs.
        content: What a repository is to hold.
    """

    saes: list[PreparedSAE]
    content: Content


def gather(
    saes: SAEs,
    repo_id: str,
    *,
    scratch: Path,
    release: Release | None = None,
    evaluation: Path | None = None,
    license: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Gathered:
    """Collect, check and redact SAEs, and gather what is known of them.

    Args:
        saes: Folders, each of one SAE or of many, or SAEs by their ids.
        repo_id: The repository.
        scratch: A folder for what is converted.
        release: The release that they are of; by itself what their `training.json` names.
        evaluation: Their `evaluation.json`; by itself those beside the folders.
        license: Of their weights; by itself the release's.
        tell: Told of what is done.

    Returns:
        The SAEs and the content. The model and the text are those that training recorded as
        the Hub's.

    Raises:
        UserError: If one of them is not fit to be published.
    """
    check_names(repo_id=repo_id, license=license)
    if isinstance(saes, Mapping):
        collected = collect_saes(saes, converted=scratch / "converted")
        files: list[Path] = []
    else:
        collected = collect(saes, converted=scratch / "converted")
        files = find_evaluations(list(saes))
    if release is not None:
        collected = [_in_release(sae, release) for sae in collected]
    measured = read_evaluations([evaluation] if evaluation else files)
    if evaluation is None:
        measured = {**evaluations_here(tell), **measured}
    prepared = prepare(collected, staged=scratch / "staged", evaluations=measured, tell=tell)
    said = _said_of_release(release, collected)
    hub_id = said.language_model.hub_id if said.language_model else None
    check_names(repo_id=repo_id, license=license or said.license)
    refuse_places("The release's description", said.description or "")
    facts = Facts(
        repo_id=repo_id,
        description=said.description,
        license=license or said.license,
        base_models=[hub_id] if hub_id and is_plain(hub_id) and "/" in hub_id else [],
        saes={sae.sae_id: sae.facts for sae in prepared},
    )
    files_to_send = [file for sae in prepared for file in sae.files]
    return Gathered(prepared, Content(facts, files_to_send))


def _said_of_release(release: Release | None, saes: Sequence[LocalSAE]) -> RecordedRelease:
    """What is known of the SAEs' release."""
    if release is not None:
        return RecordedRelease.model_validate(release.model_dump(mode="json"))
    return _common([sae.record.release for sae in saes if sae.record]) or RecordedRelease()


def _in_release(sae: LocalSAE, release: Release) -> LocalSAE:
    """The SAE by its id in a release: as training recorded it, or as its folder is called."""
    known = [spec.sae_id for spec in release.saes()]
    recorded = sae.record.sae_id if sae.record else None
    for sae_id in (recorded, sae.sae_id):
        if sae_id in known:
            return replace(sae, sae_id=sae_id)
    raise UserError(
        f"An SAE of {release.name} should be one of {', '.join(known)}. Found {sae.sae_id} in "
        f"{sae.folder}."
    )


def _common(releases: Sequence[RecordedRelease | None]) -> RecordedRelease | None:
    """What all SAEs say of their release, if they say the same."""
    return releases[0] if releases and releases.count(releases[0]) == len(releases) else None
