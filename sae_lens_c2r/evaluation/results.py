"""Reading what evaluations wrote. Needs no SAEBench.

`evaluation.json` is gathered from the files of the evaluations that have ended, and can be
gathered again at any time:

    OUT/evaluation.json
    OUT/SAE/EVALUATION/result.json    as SAEBench wrote it
    OUT/SAE/EVALUATION/about.json     of which SAE, with which settings, by which versions
    OUT/SAE/EVALUATION/log.txt        what was printed
"""

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.evaluation.catalog import SAE_LENS, WEIGHTS

ABOUT, RESULT, LOG, GATHERED = "about.json", "result.json", "log.txt", "evaluation.json"
FORMAT = 1
_NOT_A_NUMBER = -1  # what SAEBench's core writes in place of NaN


@dataclass(frozen=True)
class About:
    """What was evaluated and how: an evaluation with the same is not run again.

    Args:
        name: What the SAE is called where it is shown.
        weights_sha256: Which weights, see `weights_sha256`.
        architecture: SAELens's name of the SAE's form.
        trained_as: SAELens's name of what it was trained as, where that is known.
        d_in: Dimension of its inputs.
        d_sae: Its latents.
        evaluation: The evaluation.
        model: The language model; `None` for an evaluation of the weights alone.
        settings: The evaluation's settings, all of them.
        versions: Versions of the packages that compute it.
        seconds: How long it took.
        device: Where it ran.
    """

    name: str
    weights_sha256: str
    architecture: str
    trained_as: str | None
    d_in: int
    d_sae: int
    evaluation: str
    model: str | None
    settings: dict[str, Any]
    versions: dict[str, str]
    seconds: float
    device: str

    def is_of(self, other: "About") -> bool:
        """Whether it is the same SAE, evaluated with the same settings.

        Args:
            other: What is asked for.

        Returns:
            Whether this result answers it.
        """
        asked = ("weights_sha256", "evaluation", "model", "settings")
        mine, theirs = asdict(self), json.loads(json.dumps(asdict(other)))
        return all(mine[key] == theirs[key] for key in asked)


def read_about(folder: Path) -> About | None:
    """What was said of an evaluation that has ended.

    Args:
        folder: The evaluation's.

    Returns:
        It, or `None` if there is none that can be read.
    """
    try:
        about = About(**json.loads((folder / ABOUT).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return about if (folder / RESULT).is_file() else None


def write_result(folder: Path, about: About, result: dict[str, Any] | Path) -> None:
    """Put a result into place.

    Args:
        folder: Where it belongs.
        about: What it is of.
        result: Its content, or a file on the same disk, which is moved.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ABOUT).unlink(missing_ok=True)  # that of an earlier result
    if isinstance(result, Path):
        os.replace(result, folder / RESULT)
    else:
        write_json(folder / RESULT, result)
    write_json(folder / ABOUT, asdict(about))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a file as a whole, or not at all.

    Args:
        path: The file.
        content: What it holds.
    """
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_metrics(path: Path) -> tuple[dict[str, float], list[str]]:
    """The numbers of a result file of SAEBench's, or of ours.

    Args:
        path: The file.

    Returns:
        The finite ones, by their keys joined by dots, and the keys of those that are not.

    Raises:
        UserError: If it is no such file.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        metrics = content["eval_result_metrics"]
        is_core = content["eval_type_id"] == "core"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} should be a result of SAEBench's. {type(error).__name__}: {error}"
        ) from None
    found: dict[str, float] = {}
    missing: list[str] = []
    for key, value in _flat(metrics):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue  # None: not asked for
        if not math.isfinite(value) or (is_core and value == _NOT_A_NUMBER):
            missing.append(key)
        else:
            found[key] = value
    return found, missing


def gather(out: Path) -> dict[str, Any]:
    """Everything that has been computed, as `evaluation.json` holds it.

    Args:
        out: The folder of the evaluations.

    Returns:
        The SAEs, each with its evaluations: their metrics, source, settings and versions.
    """
    saes: dict[str, dict[str, Any]] = {}
    for folder in sorted(path.parent for path in out.glob(f"*/*/{ABOUT}")):
        about = read_about(folder)
        if about is None:
            continue
        try:
            metrics, missing = read_metrics(folder / RESULT)
        except UserError:
            continue  # a run of it will write it again
        said = asdict(about)
        evaluation = said.pop("evaluation")
        of_sae = ("name", "weights_sha256", "architecture", "trained_as", "d_in", "d_sae")
        sae = saes.setdefault(
            folder.parent.name, {key: said[key] for key in of_sae} | {"evaluations": {}}
        )
        sae["evaluations"][evaluation] = {
            "source": (folder / RESULT).relative_to(out).as_posix(),
            **{key: value for key, value in said.items() if key not in of_sae},
            "metrics": metrics,
            "missing": missing,
        }
    for sae in saes.values():
        order = (WEIGHTS, SAE_LENS)
        sae["evaluations"] = dict(
            sorted(sae["evaluations"].items(), key=lambda item: (item[0] not in order, item[0]))
        )
    return {"format": FORMAT, "saes": list(saes.values())}


def read_gathered(path: Path) -> dict[str, Any]:
    """Read an `evaluation.json`.

    Args:
        path: The file.

    Returns:
        Its content, as of `gather`.

    Raises:
        UserError: If it is no such file, or of another format.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, saes = content["format"], content["saes"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} should be written by `sae-lens-c2r evaluate`. "
            f"{type(error).__name__}: {error}"
        ) from None
    if version != FORMAT or not isinstance(saes, list):
        raise UserError(f"{path} should be of format {FORMAT}. Found {version}.")
    return dict(content)


def _flat(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(values, dict):
        return [(prefix, values)]
    return [
        pair
        for key, value in values.items()
        for pair in _flat(value, f"{prefix}.{key}" if prefix else str(key))
    ]
