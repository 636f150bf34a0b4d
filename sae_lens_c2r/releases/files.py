"""Finding and reading releases, and writing a new one."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

from pydantic import BaseModel, ValidationError

from sae_lens_c2r._support.errors import UserError, error_of
from sae_lens_c2r._support.yaml_text import read_yaml
from sae_lens_c2r.models.offline import SMOLLM2
from sae_lens_c2r.releases.model import NAME_PATTERN, Grid, LanguageModel, Release

_OF_SAES = ("sae", "axes")  # fields in a grid
_PACKAGE = Path(__file__).parents[1]  # which a wheel has the registry in
REGISTRY = next(filter(Path.is_dir, [_PACKAGE / "registry"]), _PACKAGE.parent / "registry")
_PARTS: dict[str, type[BaseModel]] = {"language_model": LanguageModel, "grids": Grid}


def find_release(name_or_path: str | Path) -> Path:
    """The YAML file at a path, or of a release that we ship; or else a UserError."""
    path = Path(name_or_path)
    if path.is_file():
        return path
    known = sorted(file.stem for file in REGISTRY.glob("*.yaml"))
    if (name := str(path).removesuffix(".yaml")) in known:
        return REGISTRY / f"{name}.yaml"
    raise UserError("release", f"be a YAML file or one of {', '.join(known)}", name_or_path)


def shipped_releases() -> list[Release]:
    """All releases that we ship, by name."""
    return [read_release(path) for path in sorted(REGISTRY.glob("*.yaml"))]


def directory_entry(release: Release) -> dict[str, Any]:
    """A release's entry in SAELens's `pretrained_saes.yaml`, to be proposed there."""
    if release.repo_id is None:
        should = "be given for an entry in SAELens's directory"
        raise UserError("repo_id", should, of=release.name)
    return {
        release.name: {
            "repo_id": release.repo_id,
            "model": release.language_model.model,
            "conversion_func": None,
            "saes": [{"id": spec.sae_id, "path": spec.sae_id} for spec in release.saes()],
        }
    }


def read_release(path: Path, *, overrides: Mapping[str, Any] | None = None) -> Release:
    """Read and check a release."""
    try:
        document = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise error_of(path, error) from None
    return release_of(document, overrides=overrides, path=path)


def release_of(
    document: dict[str, Any], *, overrides: Mapping[str, Any] | None, path: Path | None = None
) -> Release:
    """Check a release that is in memory."""
    for key, value in (overrides or {}).items():
        _override(document, key, value)
    try:
        release = Release.model_validate(document)
    except ValidationError as error:
        found = explained(error, _keys_beside)
        problems = [error_of(path, problem) if path else problem for problem in found]
        lines = UserError("\n".join(map(str, problems)))
        raise (lines if len(problems) > 1 else problems[0]) from None
    if path and release.name != path.stem:
        raise UserError("name", f"be `{path.stem}`", repr(release.name), of=path)
    return release


def _override(document: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    # It is meant for all SAEs, whatever their grids say.
    grids = document.get("grids", []) if parents[:1] == ["sae"] else []
    for fields in [grid[part] for grid in grids for part in _OF_SAES if part in grid]:
        if parents == ["sae"]:
            fields.pop(last, None)
        elif isinstance(fields.get(parents[1]), dict):
            _override(fields, key.partition(".")[2], value)
    place = document
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise UserError(key, "name a key below a mapping", f"`{parent}`")
    place[last] = value  # after the grids, with which an alias may share it


def explained(
    error: ValidationError, known: Callable[[str], str], *, within: str = ""
) -> Iterator[UserError]:
    """Explain what is wrong with keys; `known` says what an unknown key should be."""
    for problem in error.errors():
        loc, kind = problem["loc"], problem["type"]
        if within:  # of a value of several types only its name is a key
            loc = (within, *(loc if kind == "unexpected_keyword_argument" else loc[:1]))
        key = ".".join(map(str, loc))
        text = problem["msg"].removeprefix("Value error, ")  # of one of our own checks
        kinds = {"extra_forbidden": f"be {known(key)}", "missing": "be given"}
        kinds["unexpected_keyword_argument"] = "be left out"
        kinds["string_type"] = "be text, in quotes where YAML would read a number"
        # Pydantic's begin with `Input should`, or the like; those of a whole release name keys.
        should = kinds.get(kind, text.partition("should ")[2] if key else "")
        if should:
            yield UserError(key, should, "" if kind == "missing" else repr(problem["input"]))
        else:
            yield UserError(f"`{key}`: {text}." if key else f"{text}.")


def _keys_beside(key: str) -> str:
    first, *rest = key.split(".")
    return f"one of the keys {', '.join((_PARTS[first] if rest else Release).model_fields)}"


def new_release(name: str, model: str | None) -> str:
    """Write a small release in YAML, for SmolLM2 or a model that TransformerLens has."""
    if not re.fullmatch(NAME_PATTERN, name):
        should = "be lowercase letters and digits, with `-` or `.` between them"
        raise UserError("NAME", f"{should}, like my-first-release", repr(name))
    file, values = "smollm2.yaml", {}
    if model not in (None, SMOLLM2.hub_id):
        file, values = "transformer_lens.yaml", _values_of(model)
    template = Path(__file__).with_name(file).read_text(encoding="utf-8")
    return Template(template).substitute(values, name=name)


def _values_of(model: str) -> dict[str, Any]:
    from sae_lens_c2r.models.loading import pretrained_config
    from sae_lens_c2r.models.names import ModelName

    config, name = pretrained_config(model), ModelName(model)
    return {
        "hub_id": name.hub_id or f"ORG/{name.in_transformer_lens}",
        "model": model,
        "hook_name": f"blocks.{config.n_layers // 2}.hook_resid_post",
        "context_size": min(1024, config.n_ctx),
        "n_tokens": config.n_ctx,
        "d_in": config.d_model,
    }
