"""Rules for what goes to the Hub: names that it takes, and content that leaks nothing."""

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import read_object

MAIN = "main"
RESERVED = README, FACTS, FIGURES = "README.md", "sae-lens-c2r.json", "figures"  # a card's
_SAE_ID = re.compile(r"[A-Za-z0-9_][\w.-]*(/[A-Za-z0-9_][\w.-]*)*", re.ASCII)
_ID_LENGTH = 200
_COMMIT = re.compile(r"[0-9a-f]{40}")
_REVISION = re.compile(r"[A-Za-z0-9_](?:[\w.-]|/(?=[\w-]))*", re.ASCII)
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")  # the Hub is asked whether there is such a one

_SECRETS = {
    "a Hugging Face token": r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z0-9]{20,}",
    "an OpenAI or Anthropic key": r"\bsk-[A-Za-z0-9_-]{16,}",
    "an AWS key": r"\bA[KS]IA[0-9A-Z]{16}\b",
    "a GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{20,}",
    "a GitLab token": r"\bglpat-[\w-]{16,}",
    "a Google key": r"\bAIza[\w-]{35}",
    "a Slack token": r"\bxox[abeoprs]-[\w-]{10,}",
    "a registry's token": r"\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{30,}",
    "a wandb key": r"(?i)wandb[\w\"'\\ .:=-]{0,40}\b[0-9a-f]{40}\b|wandb_v1_\w{20,}"
    r"|\blocal-[0-9a-f]{40}\b",
    "a web token": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}|(?i:\bbearer )[\w.~+/-]{16,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a password in an address": r"\w+://[^/\s:@]+:[^/\s:@]+@",
    "a password": r"(?i)(?<![a-z])(?:(?:hf|auth|access|api|bearer)[_-]?token|api[_-]?key"
    r"|secret[_-]?(?:access[_-]?)?key|client[_-]?secret|password|passwd)"
    r"[\\\"']*\s*[:=]\s*[\\\"']*[^\s\\\"',}\[]{6,}",
}
# An address is one only of the web: `file:`, `s3:` and the like are places.
_PLACE = re.compile(
    r"""(?:^|[\s"'(=:,\[])(?:/|~|\\|\.{1,2}/|[A-Za-z]:[\\/])[\w.\\/~-]
    |\b(?!https?:)[A-Za-z][\w+.-]*:/|https?://[^\s/]*@|[\w.+-]+@[\w-]+""",
    re.VERBOSE,
)
# What values are like that say how an SAE is used or was made: words, numbers, names on the
# Hub, devices, versions. A slash is in a name on the Hub and nowhere else.
_WORDS = re.compile(r"[\w.+:()\[\]{}<>|,;= -]{0,200}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Target:
    """Where an upload goes.

    Args:
        repo_id: The repository, ``org/name``.
        revision: The branch, made if there is none.
        tag: A tag for the commit, set when all has been verified.
        create_pr: Whether to propose the commit instead of making it.
        public: Whether a repository that is made is public.

    Raises:
        UserError: If a name is not fit for the Hub.
    """

    repo_id: str
    revision: str = MAIN
    tag: str | None = None
    create_pr: bool = False
    public: bool = False

    def __post_init__(self) -> None:
        check_repo_id(self.repo_id)
        _check_reference("revision", self.revision)
        if self.tag is not None:
            _check_reference("tag", self.tag)
        if self.tag and self.create_pr:
            raise UserError("`tag` should be left out with `create-pr`: nothing is merged yet.")

    @property
    def on_main(self) -> bool:
        """Whether the commit is what `SAE.from_pretrained` then loads."""
        return self.revision == MAIN and not self.create_pr


def check_repo_id(repo_id: str, name: str = "repo-id") -> None:
    """Raise unless a repository's name is one of the Hub's, like ``org/name``."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"`{name}` should be like org/name. {error}") from None
    if repo_id.count("/") != 1 or not repo_id.isascii():
        raise UserError(f"`{name}` should be like org/name, on the Hub. Found {repo_id!r}.")


def _check_reference(name: str, value: str) -> None:
    """Raise unless git and the Hub allow a name for a branch or a tag."""
    parts = value.split("/")
    if (
        not _REVISION.fullmatch(value)
        or ".." in value
        or any(part.endswith((".lock", ".")) for part in parts)
        or parts[0] == "refs"
        or value == "HEAD"
        or _COMMIT.fullmatch(value)
    ):
        raise UserError(
            f"`{name}` should be a branch or tag of git's, like v1. Found {value!r}."
        )


def check_license(license: str | None) -> None:
    """Raise unless a licence is spelled like those of the Hub, or there is none."""
    if license is not None and not _LICENSE.fullmatch(license):
        raise UserError(
            f"`license` should be one of the Hub's, like mit or apache-2.0. Found {license!r}."
        )


def check_id(sae_id: str) -> str:
    """Return the id, if it may be a folder on the Hub, and is none of ours."""
    if not _SAE_ID.fullmatch(sae_id) or len(sae_id) > _ID_LENGTH:
        raise UserError(
            "An SAE's id should be folders of letters, digits, `_`, `-` and `.`, at most "
            f"{_ID_LENGTH} characters. Found {sae_id!r}."
        )
    if sae_id.partition("/")[0].lower() in map(str.lower, RESERVED):
        raise UserError(
            f"An SAE's id should not begin with {', '.join(RESERVED)}, which a card needs. "
            f"Found {sae_id!r}."
        )
    return sae_id


def refuse_nested(sae_ids: Iterable[str]) -> None:
    """Raise where an SAE would lie in another one's folder, or in its place."""
    # Sorted as paths, what lies in a folder follows it at once.
    for outer, inner in pairwise(sorted(f"{sae_id.lower()}/" for sae_id in sae_ids)):
        if inner.startswith(outer):
            raise UserError(
                f"An SAE should not lie in another one's folder. Found {inner[:-1]} and "
                f"{outer[:-1]}."
            )


def find_secrets(content: bytes | str) -> Iterator[str]:
    """Yield the kind of each thing that looks like a secret, and not the secret itself."""
    text = content if isinstance(content, str) else content.decode("utf-8", errors="replace")
    for kind, pattern in _SECRETS.items():
        if re.search(pattern, text):
            yield kind


def refuse_secrets(name: str | Path, content: bytes | str) -> None:
    """Raise where the content of a file seems to hold a secret."""
    for kind in find_secrets(content):
        raise UserError(f"{name} should hold no secret. Found what looks like {kind}.")


def read_harmless(path: Path) -> dict[str, Any]:
    """Read a file's object of JSON, unless it seems to hold a secret."""
    content = read_object(path)
    # As it is read, whatever signs the file spells it with.
    refuse_secrets(path, json.dumps(content, ensure_ascii=False))
    return content


def refuse_places(name: str, prose: str) -> None:
    """Raise where words that are published name a place on this machine, or a person's."""
    found = _PLACE.search(prose)
    if found:
        raise UserError(
            f"{name} should name no path of this machine and nobody's address. Found "
            f"{found[0].strip()!r}."
        )


def is_plain(value: Any) -> bool:
    """Whether a value of JSON is finite numbers, words and names on the Hub: no places."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, str):
        if _NAME.fullmatch(value):
            return not Path(value).exists()  # a path that looks like a name on the Hub
        return bool(_WORDS.fullmatch(value)) and not _PLACE.search(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int)


def keep_plain(value: Any) -> Any:
    """Keep what of a value of JSON may be published; `None` if it may not itself."""
    if isinstance(value, dict):
        kept = {key: keep_plain(each) for key, each in value.items() if is_plain(key)}
        return {key: each for key, each in kept.items() if each is not None}
    if isinstance(value, list):
        return [each for each in map(keep_plain, value) if each is not None]
    return value if is_plain(value) else None
