"""Rules for what goes to the Hub: names that it takes, and content that leaks nothing."""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import HARMLESS
from sae_lens_c2r.releases.model import LICENSE_PATTERN, REPO_ID

MAIN = "main"
_REPO_ID = REPO_ID, "like org/name, on the Hub"
_REFERENCE = (
    r"(?!(?:HEAD|[0-9a-f]{40})$|refs(?:/|$)|.*(?:\.\.|\.lock(?:/|$)|\.(?:/|$)))"
    r"\w(?:[\w.-]|/(?=[\w-]))*",
    "a Git branch or tag, like v1",
)
_NAMES = {  # by what they name: their pattern, and what they should be
    "repo_id": _REPO_ID,
    "base_model": _REPO_ID,
    "revision": (rf"refs/pr/\d+|{_REFERENCE[0]}", "a Git branch, like next, or refs/pr/1"),
    "tag": _REFERENCE,
    # After the yes, the Hub is asked whether it knows the licence.
    "license": (LICENSE_PATTERN, "a licence of the Hub, like mit or apache-2.0"),
}

_BEGIN = r"(?<![A-Za-z0-9])"
# Of letters, digits and hyphens, with a run of letters and digits too long to be a word.
_MIXED = r"(?=[\w-]*?(?<![A-Za-z0-9])(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{%d})[\w-]+"
_SECRETS = {
    "a Hugging Face token": _BEGIN + r"(?:hf|api_org)_[A-Za-z0-9]{30,}",
    # "sk" is Slovak, too: a name may end with a year.
    "an OpenAI or Anthropic key": _BEGIN
    + "sk-(?=[\\w-]*?(?:\\d[A-Za-z]|[A-Za-z0-9]{32}))"
    + _MIXED % 20,
    "an AWS key": _BEGIN + r"A[KS]IA[0-9A-Z]{16}\b",
    "a GitHub token": _BEGIN + r"(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9]{20}\w*)",
    "a GitLab token": _BEGIN + "glpat-" + _MIXED % 16,
    "a Google key": _BEGIN + r"AIza[\w-]{35}",
    "a Slack token": _BEGIN + "xox[abeoprs]-" + _MIXED % 12,
    "a registry's token": _BEGIN + r"(?:npm_[A-Za-z0-9]{30,}|pypi-" + _MIXED % 30 + ")",
    "a provider's key": _BEGIN + r"(?:(?:sk|rk)_live_|gsk_|r8_)[A-Za-z0-9]{20,}",
    "an Azure key": r"AccountKey=[A-Za-z0-9+/]{40,}",
    "a wandb key": r"(?i)wandb[\w.-]*key[\w\"'\\ .:=-]{0,9}\b[0-9a-f]{40}\b"
    rf"|{_BEGIN}wandb_v1_\w{{20,}}|{_BEGIN}local-[0-9a-f]{{40}}\b",
    "a web token": r"\beyJ[\w-]{8,}\.eyJ[\w.-]{8,}|(?i:\bbearer )(?=\S*\d)[\w.~+/-]{16,}",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY[\s\S]*",
    "a password in an address": r"\w+://[^/\s:@]*:[^/\s:@]+@",
    "a password": r"(?i)(?<![a-z])(?:(?:hf|auth|access|api|bearer)[_-]?token|api[_-]?key"
    r"|secret[_-]?(?:access[_-]?)?key|client[_-]?secret|password|passwd)"
    r"[\\\"']*\s*[:=]\s*[\\\"']*"
    # but for the name of a variable that has it
    r"(?!(?-i:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b))"
    r"(?=\S*\d)(?=\S*[A-Za-z])[^\s\\\"',}\[<{$]\S{5,}",
}
# Only web addresses may be published: `file:`, `s3:` and the like name places.
_PLACE = re.compile(
    r"""(?:^|[\s"'`(=,\[{|]|(?<!http)(?<!https):)
    (?:~[\w.-]*[\\/]|(?:/|\\|\.{1,2}/|[A-Za-z]:[\\/])[\w.\\/~-])
    |\b(?!https?:)[A-Za-z][\w+.-]*:/|https?://[^\s/]*@|[\w.+-]+@(?:[A-Za-z][\w-]*\.\w|[A-Za-z]{4}|\d+\.\w)""",
    re.VERBOSE,
)
# Values that may be published: words, numbers, names on the Hub, devices, versions. Only a
# name on the Hub has a slash, and only a split like train[90%:] a percent sign.
_WORDS = re.compile(r"(?:[\w.+:()\[\]{}<>|,;= -]|%(?=[\]:])){0,200}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)

_PARTS = ("dataset_split", "dataset_subset", "dataset_column")  # of a text that has a name
# Of a config's metadata, what says how to use an SAE and how it was trained.
_METADATA = {
    *("sae_lens_version", "sae_lens_training_version", "training_architecture"),
    *("model_name", "model_class_name", "dataset_path", "neuronpedia_id"),
    *_PARTS,
    *("hook_name", "hook_head_index", "context_size", "prepend_bos", "seqpos_slice"),
    *("exclude_special_tokens", "disable_concat_sequences", "sequence_separator_token"),
    *("c2r_effective_coefficient", "ort_effective_coefficient"),
    *("l0", "num_dead_features", "is_transcoder", "hook_name_out", "d_out"),
    *("hook_head_index_out", "hf_hook_name", "hf_hook_name_out"),
}
_OF_MODEL = ("metadata", "model_from_pretrained_kwargs")
# Of a model's options, all but those that are of a machine.
_MODEL_OPTIONS = HARMLESS - {
    *("device_map", "n_devices", "max_memory", "low_cpu_mem_usage", "local_files_only"),
    "tp_plan",
}
_PART = r"[\w.+: -]{1,200}"
# Of these, no more may be published than what they are for.
_OWN_PATTERNS = {
    "neuronpedia_id": r"([\w.-]+/)?[\w.-]+/[\w.-]+",
    "dataset_split": rf"{_PART}(\[[\d:%-]*\])?",  # like train[:10%]
    **dict.fromkeys(("dataset_subset", "dataset_column"), _PART),
    **dict.fromkeys(("checkpoint_value", "checkpoint_index"), r"\d+"),
    **dict.fromkeys(("n_ctx", "first_n_layers"), r"\d+"),
    "attn_implementation": r"\w+",  # and no kernel on the Hub
}


@dataclass(frozen=True)
class Target:
    """Where an upload goes.

    Args:
        repo_id: The repository, ``org/name``.
        revision: The branch, made if there is none, or a pull request, like ``refs/pr/1``.
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
        check_names(repo_id=self.repo_id, revision=self.revision, tag=self.tag)
        if self.create_pr and self.revision.startswith("refs/"):
            raise UserError("create_pr", "be left out to add to an existing pull request")
        if self.tag and self.proposes:
            raise UserError("tag", "be left out of a pull request: nothing is merged yet")

    @property
    def proposes(self) -> bool:
        """Whether the commit is one of a pull request, which needs no right to write."""
        return self.create_pr or self.revision.startswith("refs/")


def check_names(**names: str | None) -> None:
    """Raise unless the Hub takes each name that is given."""
    for name, value in names.items():
        pattern, should = _NAMES[name]
        if value is not None and not re.fullmatch(pattern, value, re.ASCII):
            raise UserError(name, f"be {should}", repr(value))


def refuse_secrets(name: str | Path, content: Any, *, check: bool = True) -> None:
    """Raise where a text or JSON holds what secrets look like; the error hides their middle."""
    for place, text in _texts(content) if check else ():
        for kind, pattern in _SECRETS.items():
            if found := re.search(pattern, text):
                secret, rest = found[0], (text[: found.start()], text[found.end() :])
                # There may be another one beside it.
                before, after = (re.sub(r"[\w+/=-]{20,}", "…", each) for each in rest)
                end = secret[-2:] if len(secret) > 20 and "password" not in kind else ""
                hidden = f"`{before[-30:]}{secret[:6]}…{end}{after[:30]}`"
                found_in = f"in {re.sub(pattern, '…', place)} what looks like {kind}: {hidden}"
                advice = "If it is none, add `--no-secret-check`."
                raise UserError(Path(name), "hold no secret", found_in, advice)


def _texts(content: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """The lines of a text, or the values of JSON with their keys, and where they stand."""
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from _texts(value, f"{place}.{key}" if place else str(key))
    elif place:
        yield f"`{place}`", f"{place}: {content}"
    else:
        for number, line in enumerate(str(content).splitlines(), start=1):
            yield f"line {number}", line


def refuse_places(name: str, prose: str) -> None:
    """Raise where words that are published name a place on this machine, or a person's."""
    if found := _PLACE.search(prose):
        raise UserError(
            f"{name} should have no local path and no personal address. Found "
            f"{found[0].strip()!r}."
        )


def is_plain(value: Any) -> bool:
    """Whether a value of JSON is finite numbers, words and names on the Hub: no places."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    if isinstance(value, str):
        return bool(_NAME.fullmatch(value) or _WORDS.fullmatch(value))
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int)


def keep_plain(value: Any) -> Any:
    """Keep the parts of a JSON value that may be published; `None` if nothing may."""
    if isinstance(value, dict):
        kept = {key: keep_plain(each) for key, each in value.items() if is_plain(key)}
        return {key: each for key, each in kept.items() if each is not None}
    if isinstance(value, list):
        return [each for each in map(keep_plain, value) if each is not None]
    return value if is_plain(value) else None


def redact(
    config: Mapping[str, Any], of_disk: Collection[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Keep what SAELens needs of a config, and what tells its origin; list what is removed."""
    architecture, metadata = config.get("architecture"), config.get("metadata")
    trained_as = metadata.get("training_architecture") if isinstance(metadata, dict) else None
    known = {
        (): {"architecture", *_fields_of(SAE_CLASS_REGISTRY, architecture)},
        ("metadata",): _METADATA,
        _OF_MODEL: _MODEL_OPTIONS,
        ("metadata", "training_architecture_details"): _fields_of(
            SAE_TRAINING_CLASS_REGISTRY, trained_as
        ),
    }
    removed: list[str] = []

    def keep(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> dict[str, Any]:
        kept = {}
        for key, value in values.items():
            inside = (*path, key)
            pattern = None if value is None else _OWN_PATTERNS.get(key)
            fits = re.fullmatch(pattern, str(value), re.ASCII) if pattern else is_plain(value)
            if inside in known and isinstance(value, dict):
                kept[key] = keep(value, inside)
            elif isinstance(value, str) and value in of_disk:  # like a name on the Hub
                removed.append(".".join(inside))
            elif inside not in known and key in known[path] and fits:
                kept[key] = value
            elif path == _OF_MODEL and key in known[path] and isinstance(value, dict):
                kept[key] = keep_plain(value)
            else:
                removed.append(".".join(inside))
        return kept

    kept = keep(config)
    of_text = kept.get("metadata", {})
    for key in [each for each in of_text if each in _PARTS and "dataset_path" not in of_text]:
        del of_text[key]
        removed.append(f"metadata.{key}")
    return ({**kept, "device": "cpu"} if "device" in kept else kept), removed


def _fields_of(registry: Mapping[str, Any], architecture: Any) -> set[str]:
    """The fields of an architecture's config, if there is such an architecture."""
    if not isinstance(architecture, str) or architecture not in registry:
        return set()
    return {field.name for field in fields(registry[architecture][1])}
