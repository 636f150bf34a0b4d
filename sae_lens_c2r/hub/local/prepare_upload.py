"""From folders, or SAEs in memory, to what is published of them. Nothing here asks the Hub."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.card.content import Content
from sae_lens_c2r.hub.card.facts import Facts
from sae_lens_c2r.hub.card.pictures import pictures
from sae_lens_c2r.hub.leaks import is_plain, refuse_places
from sae_lens_c2r.hub.local.collect import LocalSAE, collect, collect_saes
from sae_lens_c2r.hub.local.evaluations import known_evaluations
from sae_lens_c2r.hub.local.prepare_saes import PreparedSAE, prepare_saes
from sae_lens_c2r.hub.names import check_license, check_repo_id
from sae_lens_c2r.hub.submission import Submission
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.saes.licenses import allows_derivatives
from sae_lens_c2r.training.record import RecordedRelease


@dataclass(frozen=True)
class PreparedUpload:
    """SAEs that are ready, and what a repository is to hold of them."""

    saes: list[PreparedSAE]
    content: Content


def prepare_upload(
    submission: Submission,
    repo_id: str,
    *,
    scratch: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> PreparedUpload:
    """What is published of a submission: SAEs that were checked, and what is known of them."""
    check_repo_id(repo_id)
    collected = _collected(submission, scratch / "converted")
    if submission.license is None:
        _check_derivatives(collected)
    evaluations = known_evaluations(submission, tell)
    prepared = prepare_saes(
        collected,
        staged=scratch / "staged",
        evaluations=evaluations,
        base_model=submission.base_model,
        tell=tell,
    )
    said = _said_of_release(submission.release, collected)
    hub_id = said.language_model.hub_id if said.language_model else None
    hub_id = submission.base_model or hub_id
    check_license(submission.license or said.license)
    refuse_places("The release's description", said.description or "")
    facts = Facts(
        repo_id=repo_id,
        description=said.description,
        license=submission.license or said.license,
        base_models=[hub_id] if hub_id and is_plain(hub_id) and "/" in hub_id else [],
        saes={sae.sae_id: sae.facts for sae in prepared},
    )
    files = [file for sae in prepared for file in sae.files]
    return PreparedUpload(prepared, Content(facts, pictures(facts), files))


def _collected(submission: Submission, converted: Path) -> list[LocalSAE]:
    saes, release = submission.saes, submission.release
    if isinstance(saes, Mapping):
        collected = collect_saes(saes, converted=converted)
    else:
        collected = collect(saes, converted=converted)
    return [_in_release(sae, release) for sae in collected] if release else collected


def _check_derivatives(saes: Sequence[LocalSAE]) -> None:
    """Raise where an SAE was made of one that may not be published when it was changed."""
    for sae in saes:
        start = sae.record.started_from if sae.record else None
        if start is not None and not allows_derivatives(start.license):
            raise UserError(
                f"`license` should be given for {sae.sae_id}: it started from an SAE under "
                f"{start.license}, which does not allow to publish what is made of it. Have "
                "its authors allowed it?"
            )


def _said_of_release(release: Release | None, saes: Sequence[LocalSAE]) -> RecordedRelease:
    """What is known of the SAEs' release: where training recorded it, if all say the same."""
    if release is not None:
        return RecordedRelease.model_validate(release.model_dump(mode="json"))
    recorded = [sae.record.release for sae in saes if sae.record]
    alike = recorded and recorded.count(recorded[0]) == len(recorded)
    return (recorded[0] if alike else None) or RecordedRelease()


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
