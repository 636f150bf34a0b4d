"""What should not leave this machine: secrets, and names of places on it."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.reading import read_object

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


def find_secrets(content: bytes | str) -> Iterator[str]:
    """What looks like a secret: of each the kind, and not the secret itself."""
    text = content if isinstance(content, str) else content.decode("utf-8", errors="replace")
    for kind, pattern in _SECRETS.items():
        if re.search(pattern, text):
            yield kind


def refuse_secrets(name: str | Path, content: bytes | str) -> None:
    """Raise where the content of a file seems to hold a secret."""
    for kind in find_secrets(content):
        raise UserError(f"{name} should hold no secret. Found what looks like {kind}.")


def read_harmless(path: Path) -> dict[str, Any]:
    """The object that a file of JSON should hold, unless it seems to hold a secret."""
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
    """What of a value of JSON may be published; `None` if it may not itself."""
    if isinstance(value, dict):
        kept = {key: keep_plain(each) for key, each in value.items() if is_plain(key)}
        return {key: each for key, each in kept.items() if each is not None}
    if isinstance(value, list):
        return [each for each in map(keep_plain, value) if each is not None]
    return value if is_plain(value) else None
