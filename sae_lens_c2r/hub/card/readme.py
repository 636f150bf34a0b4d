"""A repository's `README.md`: our part between two marks, and every other word as it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.hub.names import README

BEGIN = "<!-- sae-lens-c2r:begin. What follows is rewritten by every upload. -->"
END = "<!-- sae-lens-c2r:end. What follows is yours, and so is what stands above. -->"
INDEX, TASK = "model-index", "sparse autoencoder"  # and what our results in it are of
_LISTS = ("base_model", "datasets", "tags")  # which others add to
_BEGIN, _END = (re.compile(f"<!-- sae-lens-c2r:{mark}\\b.*?-->") for mark in ("begin", "end"))
_FRONT = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)(?:^|\r?\n)---[ \t]*(?:\r?\n|\Z)", re.S | re.M)


@dataclass(frozen=True)
class Readme:
    """A `README.md`.

    Args:
        front: The metadata, in YAML; `None` if it has none.
        body: The rest.
    """

    front: str | None
    body: str

    @classmethod
    def read(cls, content: str) -> "Readme":
        """The parts of a file's content."""
        content = content.removeprefix("\ufeff")  # with which the Hub sees no metadata
        found = _FRONT.match(content)
        if not found:
            return cls(None, content)
        return cls(found[1], content[found.end() :])

    @property
    def metadata(self) -> dict[str, Any]:
        """What the metadata say; a UserError if that is no mapping in YAML."""
        try:
            said = yaml.safe_load(f"{self.front or ''}\n") or {}
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            raise UserError(
                f"{README} should have metadata in YAML. {one_line(error)}"
            ) from None
        if not isinstance(said, dict):
            raise UserError(f"{README} should have a mapping as metadata. Found {said!r}.")
        return said

    def __str__(self) -> str:
        if self.front is None:
            return self.body
        newline = "\r\n" if "\r\n" in self.front or self.body.startswith("\r\n") else "\n"
        front = self.front.rstrip("\r\n")
        return f"---{newline}{front}{newline}---{newline}{self.body}"


def set_metadata(content: str, values: Mapping[str, Any]) -> str:
    """Set some of a file's metadata, and leave every other line of it as it is."""
    readme = Readme.read(content)
    others = {key: value for key, value in readme.metadata.items() if key not in values}
    front = readme.front or ""
    for key, value in values.items():
        front = _without(front, key) + yaml_dump({key: value}, sort_keys=False)
    if "\r\n" in (readme.front or ""):
        front = re.sub(r"\r?\n", "\r\n", front)
    if _parsed(front) != {**others, **values}:  # odd YAML, such as a single line in braces
        front = yaml_dump({**others, **values}, sort_keys=False)
    return str(Readme(front, readme.body))


def merged(existing: str | None, card: str) -> str:
    """Bring a card into the file that a repository has.

    Args:
        existing: The file's content; `None` if there is none.
        card: The card, with its metadata and between its marks.

    Returns:
        The file: what stands outside the marks as it was, metadata that it had as they were,
        and those that it had not added. The results of SAEs that are not ours are kept.

    Raises:
        UserError: If its metadata or its marks are not whole.
    """
    if existing is None:
        return card
    found, ours = Readme.read(existing), Readme.read(card)
    newline = "\r\n" if "\r\n" in existing else "\n"
    block = _block(ours.body).replace("\n", newline)
    begins, ends = (list(mark.finditer(found.body)) for mark in (_BEGIN, _END))
    if not begins and not ends:
        gap = newline * 2 if found.body.strip() else ""
        body = found.body.rstrip("\r\n") + gap + block + newline
    elif len(begins) == len(ends) == 1 and begins[0].end() <= ends[0].start():
        body = found.body[: begins[0].start()] + block + found.body[ends[0].end() :]
    else:
        raise UserError(
            f"{README} should have the marks {BEGIN} and {END} once each, in this order, or "
            f"none of them. Found {len(begins)} and {len(ends)}."
        )
    known, new = found.metadata, ours.metadata
    joined = {**{key: value for key, value in new.items() if key not in known}}
    joined |= {key: _joined(known.get(key), new[key]) for key in _LISTS if key in new}
    if INDEX in new:
        joined[INDEX] = _joined_index(known.get(INDEX), new[INDEX])
    added = {key: value for key, value in joined.items() if value != known.get(key)}
    content = str(Readme(found.front, body))
    return set_metadata(content, added) if added else content


def _block(body: str) -> str:
    begin, end = _BEGIN.search(body), _END.search(body)
    assert begin is not None
    assert end is not None
    return body[begin.start() : end.end()]


def _joined(known: Any, new: Any) -> Any:
    """What a list has, and what it is to have beside that."""
    before, after = (
        value if isinstance(value, list) else [value] for value in (known or [], new)
    )
    together = before + [value for value in after if value not in before]
    return known if together == before else new if not before else together


def _joined_index(known: Any, new: list[dict[str, Any]]) -> list[Any]:
    """Our results in place of our earlier ones, among everybody else's."""
    ours = {entry["name"]: entry for entry in new}
    index = []
    for entry in known if isinstance(known, list) else []:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name not in ours:
            index.append(entry)
            continue
        results = entry.get("results")
        theirs = [each for each in results if not _is_ours(each)] if results else []
        mine = ours.pop(name)
        index.append({**entry, "results": [*theirs, *mine["results"]]})
    return [*index, *ours.values()]


def _is_ours(result: Any) -> bool:
    task = result.get("task") if isinstance(result, dict) else None
    return isinstance(task, dict) and task.get("name") == TASK


def _without(front: str, key: str) -> str:
    """The metadata without the lines of one key, and with an end of line."""
    lines, kept, inside = front.splitlines(keepends=True), [], False
    for line in lines:
        if re.match(rf"([\"']?){re.escape(key)}\1[ \t]*:", line):
            inside = True
        elif inside and re.match(r"[^\s-]|-\S", line):  # the next key, or a comment
            inside = False
        if not inside:
            kept.append(line)
    text = "".join(kept)
    return text if not text or text.endswith("\n") else text + "\n"


def _parsed(front: str) -> Any:
    try:
        return yaml.safe_load(front)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
