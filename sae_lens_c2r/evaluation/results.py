"""Reading what evaluations wrote. Needs no SAEBench.

`evaluation.json` is gathered from the files of the evaluations that have ended, and can be
gathered again at any time:

    OUT/evaluation.json, evaluation.md
    OUT/SAE/EVALUATION/result.json    as SAEBench wrote it
    OUT/SAE/EVALUATION/about.json     of which SAE, with which settings, by which versions
    OUT/SAE/EVALUATION/log.txt        what was printed
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.writing import write_json
from sae_lens_c2r.evaluation.about import About, Asked
from sae_lens_c2r.evaluation.catalog import type_id

ABOUT, RESULT, LOG = "about.json", "result.json", "log.txt"
_NOT_A_NUMBER = -1  # what SAEBench's core writes in place of NaN


def read_about(folder: Path) -> About | None:
    """What was said of an evaluation that has ended.

    Returns:
        What was said, or `None` if there is nothing that can be read.
    """
    try:
        about = About.model_validate_json((folder / ABOUT).read_bytes(), strict=True)
        json.dumps(about.model_dump(), allow_nan=False)
    except (OSError, ValueError):
        return None
    return about


def is_answered(folder: Path, asked: Asked) -> bool:
    """Whether a folder holds a result that answers what is asked, and can be read."""
    about = read_about(folder)
    if about is None or about.asked.model_dump() != asked.model_dump(mode="json"):
        return False
    try:
        read_metrics(folder / RESULT, asked.evaluation)
    except UserError:
        return False
    return True


def write_result(folder: Path, about: About, result: dict[str, Any] | Path) -> None:
    """Put a result into place.

    Args:
        folder: Where it belongs.
        about: What it is of.
        result: Its content, or a file on the same disk, which is moved.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said = about.model_dump()
    json.dumps(said, allow_nan=False)  # before anything is replaced
    (folder / ABOUT).unlink(missing_ok=True)  # that of an earlier result
    if isinstance(result, Path):
        os.replace(result, folder / RESULT)
    else:
        write_json(folder / RESULT, result)
    write_json(folder / ABOUT, said)


def read_metrics(path: Path, evaluation: str) -> tuple[dict[str, float], list[str]]:
    """The numbers of a result file of SAEBench's, or of ours.

    Returns:
        The finite ones, by their keys joined by dots, and the keys of those that are not.

    Raises:
        UserError: If it is no such file, or has no finite number.
    """
    try:
        content = json.loads(path.read_bytes())
        metrics, found_id = content["eval_result_metrics"], content["eval_type_id"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} should be a result of SAEBench's. {type(error).__name__}: {error}"
        ) from None
    if found_id != type_id(evaluation):
        raise UserError(f"{path} should be a result of {evaluation}. Found {found_id}.")
    found: dict[str, float] = {}
    missing: list[str] = []
    for key, value in _flat(metrics):
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue  # None: not asked for
        swallowed = evaluation == "core" and value == _NOT_A_NUMBER
        if swallowed or not -sys.float_info.max <= value <= sys.float_info.max:
            missing.append(key)
        else:
            found[key] = value
    if not found:
        raise UserError(f"{path} should have a finite number. Found none.")
    return found, missing


def _flat(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if not isinstance(values, dict):
        return [(prefix, values)]
    return [
        pair
        for key, value in values.items()
        for pair in _flat(value, f"{prefix}.{key}" if prefix else str(key))
    ]
