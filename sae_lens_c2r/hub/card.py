"""A card: `README.md` of a repository, joined with what the repository has.

Our part stands between two marks; the rest of the file stays as it is.
"""

import re
from collections.abc import Callable, Collection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.files import write_bytes
from sae_lens_c2r.hub.local_saes import check_saes, repo_record
from sae_lens_c2r.hub.rendering import BEGIN, END, INDEX, TASK, pictures, render
from sae_lens_c2r.hub.repo_record import RepoRecord
from sae_lens_c2r.hub.rules import check_names, refuse_secrets
from sae_lens_c2r.hub.submission import SAEs, Submission
from sae_lens_c2r.releases.model import FACTS, README, check_ids

_BEGIN, _END = (re.compile(f"<!-- sae-lens-c2r:{mark}\\b.*?-->") for mark in ("begin", "end"))
_COMMENTS = re.compile(r"^(?:[ \t]*(?:#.*)?\r?\n)+\Z", re.MULTILINE)  # on what follows
LISTS = ("base_model", "datasets", "tags")  # metadata which others add to


def write_card(
    saes: SAEs | Submission,
    out: Path,
    *,
    repo_id: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Render the card of SAEs, joined with what a folder has.

    Args:
        saes: Folders, each with one or more SAEs, or SAEs in memory by their ids, or a
            `Submission`, which says more about the SAEs.
        out: A folder, like a repository: its `README.md` keeps what stands outside our marks.
        repo_id: The repository that the card is for; by default the repository of the release
            that is given, or that training recorded.
        tell: Called with lines on the progress.

    Returns:
        The card's file. Beside it are its pictures and its records.

    Raises:
        UserError: If one of the SAEs is not fit to be published, or `out` has the card of
            another repository.
    """
    check_names(repo_id=repo_id)
    submission = saes if isinstance(saes, Submission) else Submission(saes)
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        local = check_saes(submission, Path(scratch), tell)
        repo = repo_record(submission, local, repo_id, tell)

    def read(path: str) -> bytes | None:
        return (out / path).read_bytes() if (out / path).is_file() else None

    known = read(FACTS)
    found = repo.repo_id if known is None else RepoRecord.read(known).repo_id
    if found != repo.repo_id:
        should = f"be a new folder, or hold the card of {repo.repo_id}"
        raise UserError("out", should, f"the card of {found} in {out}")
    files = card_files(repo, read, check_secrets=submission.check_secrets)
    for path, content in files.items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out / path, content)
    return out / README


def card_files(
    repo: RepoRecord,
    read: Callable[[str], bytes | None] = lambda _: None,
    *,
    there: Collection[str] | None = None,  # the files of the repository, if it has the SAEs'
    check_secrets: bool = True,
) -> dict[str, bytes]:
    """Render a card of SAEs and of those that its repository has, with pictures and records."""
    known, readme = read(FACTS), read(README)
    before = None if known is None else RepoRecord.read(known)
    repo = repo if before is None else before.joined(repo, there)
    had = [*before.base_models, *before.datasets] if before else []
    gone = [name for name in had if name not in (*repo.base_models, *repo.datasets)]
    check_ids(repo.saes)
    try:
        existing = None if readme is None else readme.decode()
    except UnicodeDecodeError as error:
        raise UserError(Path(README), "be UTF-8", more=str(error), of="repository") from None
    said = split_card(existing or "")[1].get("license")
    found = said if isinstance(said, list) else [said]
    licenses = [each for each in found if isinstance(each, str)]
    if licenses and repo.license not in (None, *licenses):
        should = f"be {' or '.join(licenses)}, as in {README} of the repository"
        advice = f"Confirm it with `--license {licenses[0]}`."
        raise UserError("license", should, repo.license, advice)
    if isinstance(said, str):
        repo = repo.model_copy(update={"license": said})
    drawn = pictures(repo)
    written = {README: render(repo, drawn), FACTS: repo.to_json()}
    for name, text in written.items():  # not what others wrote on the card, which is public
        refuse_secrets(name, text, check=check_secrets)
    written[README] = merged(existing, written[README], gone)
    return {**{name: text.encode() for name, text in written.items()}, **drawn}


def split_card(content: str) -> tuple[str, dict[str, Any], str]:
    """Split a `README.md` into its front matter, what that says, and the text after it."""
    content = content.removeprefix("\ufeff")  # with which the Hub sees no metadata
    found = REGEX_YAML_BLOCK.match(content)
    if not found:
        return "", {}, content
    try:
        metadata = yaml.safe_load(f"{found[2]}\n") or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = one_line(error)
        raise UserError(Path(README), "have metadata in YAML", more=problem) from None
    if not isinstance(metadata, dict):
        raise UserError(Path(README), "have a mapping as metadata", repr(metadata))
    return content[: found.end()], metadata, content[found.end() :]


def merged(existing: str | None, card: str, gone: Collection[str] = ()) -> str:
    """Bring a card into a repository's file, of which the rest stays, but for what is gone."""
    if existing is None:
        return card
    (front, known, body), (_, new, ours) = split_card(existing), split_card(card)
    newline = "\r\n" if "\r\n" in existing else "\n"
    said = {key for key, value in known.items() if (key, value) != ("license", None)}
    joined = {**known, **{key: value for key, value in new.items() if key not in said}}
    for key in [key for key in LISTS if key in new or known.get(key)]:
        joined[key] = _joined(known.get(key), new.get(key, []), gone)
        if not joined[key]:
            del joined[key]
    if index := _joined_index(known.get(INDEX), new.get(INDEX, [])):
        joined[INDEX] = index
    elif isinstance(known.get(INDEX), list):  # of results of ours alone
        del joined[INDEX]
    if joined != known:
        front = _front(front, known, joined, newline)
    return front + _with_block(body, ours, newline)


def _front(front: str, known: dict[str, Any], joined: dict[str, Any], newline: str) -> str:
    """Front matter of other metadata, in which the keys that stay are written as they were."""

    def dump(metadata: dict[str, Any]) -> str:
        text: str = yaml_dump(metadata, sort_keys=False)
        return text.strip().replace("\n", newline) + newline if metadata else ""

    whole, found = f"---{newline}{dump(joined)}---{newline}", REGEX_YAML_BLOCK.match(front)
    if not (known and found):
        return whole
    lines = found[2].rstrip() + newline
    node: Any = yaml.compose(lines)
    starts = [key.start_mark.index for key, _ in node.value]
    if node.flow_style or len(starts) != len(known):
        return whole
    written = lines[: starts[0]]
    for key, start, end in zip(known, starts, [*starts[1:], len(lines)], strict=True):
        if key in joined:
            own = lines[start:end]
            after = _COMMENTS.search(own)
            changed = dump({key: joined[key]}) + (after[0] if after else "")
            written += own if joined[key] == known[key] else changed
    written += dump({key: value for key, value in joined.items() if key not in known})
    kept = f"---{newline}{written}---{newline}"
    try:
        return kept if split_card(kept)[1] == joined else whole
    except UserError:  # an anchor of what was changed
        return whole


def _with_block(body: str, card: str, newline: str) -> str:
    """Put our part into a text: in place of an earlier one, or at the end."""
    begins, ends = (list(mark.finditer(body)) for mark in (_BEGIN, _END))
    block = card[card.index(BEGIN) : card.index(END) + len(END)].replace("\n", newline)
    if not begins and not ends:
        gap = newline * 2 if body.strip() else ""
        return body.rstrip("\r\n") + gap + block + newline
    if not len(begins) == len(ends) == 1 or begins[0].end() > ends[0].start():
        should = f"have the marks {BEGIN} and {END} once each, in this order, or neither mark"
        raise UserError(Path(README), should, f"{len(begins)} and {len(ends)}")
    return body[: begins[0].start()] + block + body[ends[0].end() :]


def _joined(known: Any, new: Any, gone: Collection[str]) -> Any:
    """Join what a list has, but for what is gone, and what it is to have beside that."""
    had, after = (value if isinstance(value, list) else [value] for value in (known or [], new))
    before = [value for value in had if value not in gone]
    together = before + [value for value in after if value not in before]
    return known if together == had else together if before else new


def _joined_index(known: Any, new: list[dict[str, Any]]) -> list[Any]:
    """Put our results in place of our earlier ones, among everybody else's."""
    ours = {entry["name"]: entry["results"] for entry in new}
    index = []
    for entry in known if isinstance(known, list) else []:
        name, results = (
            entry.get(key) if isinstance(entry, dict) else None for key in ("name", "results")
        )
        found = results if isinstance(results, list) else []
        theirs = [each for each in found if not _is_ours(each)]
        if isinstance(name, str) and name in ours:
            entry = {**entry, "results": [*theirs, *ours.pop(name)]}
        elif len(theirs) < len(found):
            entry = {**entry, "results": theirs}
        if not found or entry["results"]:
            index.append(entry)
    return [*index, *({"name": name, "results": results} for name, results in ours.items())]


def _is_ours(result: Any) -> bool:
    task = result.get("task") if isinstance(result, dict) else None
    return isinstance(task, dict) and task.get("name") == TASK
