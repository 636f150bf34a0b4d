"""A card in a folder of this machine, as an upload would write it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.writing import write_bytes, write_text
from sae_lens_c2r.hub.card.content import Content
from sae_lens_c2r.hub.card.facts import read_facts
from sae_lens_c2r.hub.card.readme import BEGIN, END, Readme
from sae_lens_c2r.hub.card.render import render_planned
from sae_lens_c2r.hub.local.prepare_upload import prepare_upload
from sae_lens_c2r.hub.names import FACTS, README
from sae_lens_c2r.hub.remote.snapshot import Snapshot
from sae_lens_c2r.hub.submission import SAEs, Submission
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.saes.sae_ref import sae_folders
from sae_lens_c2r.training.record import read_record


def write_card(
    saes: SAEs | Submission,
    out: Path,
    *,
    repo_id: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Render the card of SAEs, joined with what a folder has.

    Args:
        saes: Folders, each of one SAE or of many, or SAEs in memory by their ids; with what
            else is said of them, a `Submission`.
        out: A folder, like a repository: its `README.md` keeps what stands outside our marks.
        repo_id: The repository that the card is for; by itself that of the release, or of the
            one that training recorded.
        tell: Told of what is done.

    Returns:
        The card's file. Beside it are its pictures and what it was made of.

    Raises:
        UserError: If one of the SAEs is not fit to be published, or `out` has the card of
            another repository.
    """
    submission = Submission.of(saes)
    repo_id = repo_id or _recorded_repo_id(submission)
    if repo_id is None:
        raise UserError("`repo-id` should be given, like org/name, where there is no release.")
    _check_same_repository(out, repo_id)
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        prepared = prepare_upload(submission, repo_id, scratch=Path(scratch), tell=tell)
    return write_content(replace(prepared.content, saes=()), out)


def _recorded_repo_id(submission: Submission) -> str | None:
    """The repository of the release, or of the one that all SAEs were trained of."""
    if submission.release is not None:
        return submission.release.repo_id
    paths = [] if isinstance(submission.saes, Mapping) else submission.saes
    found = set()
    for folder in (folder for path in paths for folder in sae_folders(path)):
        record = read_record(folder)
        found.add(record.release.repo_id if record and record.release else None)
    return found.pop() if len(found) == 1 else None


def _check_same_repository(out: Path, repo_id: str) -> None:
    """Raise where a card would be joined with that of another repository."""
    facts = out / FACTS
    found = read_facts(facts.read_bytes()).repo_id if facts.is_file() else repo_id
    if found != repo_id:
        raise UserError(
            f"`out` should be a new folder, or one with the card of {repo_id}. Found the card "
            f"of {found} in {out}."
        )


def write_content(content: Content, out: Path) -> Path:
    """Write what a repository is to hold into a folder; the card's file."""

    def read(path: str) -> bytes | None:
        place = out / path
        return place.read_bytes() if place.is_file() else None

    for file in content.files(Snapshot(read=read)):
        assert isinstance(file.content, bytes), "a card is written in memory"
        place = out / file.path_in_repo
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, file.content)
    return out / README


def planned_card(release: Release, out: Path) -> Path:
    """Write the card of a release that is not trained yet, to a folder or a `.md` file.

    Args:
        release: The release.
        out: Where to. An earlier planned card of the release is written anew.

    Returns:
        The card's file.

    Raises:
        UserError: If the release is not planned, or another file is there.
    """
    path = out if out.suffix == ".md" else out / README
    card = render_planned(release)
    if path.exists() and not _is_planned_card(path, like=card):
        raise UserError(
            f"`out` should be a new file or folder, or the planned card of {release.name}. "
            f"Found another file, {path}, which would be lost."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, card)
    return path


def _is_planned_card(path: Path, *, like: str) -> bool:
    """Whether a file is a planned card of the same title, and nobody's words around it."""
    try:
        found = Readme.read(path.read_text(encoding="utf-8")).body.strip()
    except (OSError, UnicodeDecodeError):
        return False
    title, _, _ = Readme.read(like).body.partition(BEGIN)
    begins = found.startswith(f"{title.strip()}\n\n{BEGIN}")
    return begins and "**Planned.**" in found and found.endswith(END)
