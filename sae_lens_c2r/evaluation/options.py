"""What is asked of an evaluation on the command line, and whether it can be."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.catalog import API_KEY, KNOWN_FEATURES, SAE_LENS, find_evaluation
from sae_lens_c2r.evaluation.eval_settings import counted_settings, sae_bench_settings
from sae_lens_c2r.inspection.text import read_text
from sae_lens_c2r.offline.source import OFFLINE_DATASET


@dataclass(frozen=True)
class Options:
    """What is asked for.

    Args:
        out: Folder of the results.
        sae_bench: Names of SAEBench's evaluations.
        sae_lens: Whether to run SAELens's own: of a language model's SAE, or of one of known
            features.
        model: The language model; `None` for what each SAE's config names.
        text: What SAELens's own evaluation reads; `None` for what each SAE was trained on.
        data: Folder with datasets by their names on the Hub, for SAEBench.
        changes: Settings in place of the defaults, by evaluation.
        device: Torch device.
        at_once: Evaluations at a time.
        hours: How long one may take.
    """

    out: Path
    sae_bench: Sequence[str]
    sae_lens: bool
    model: str | None
    text: str | None
    data: Path | None
    changes: dict[str, dict[str, Any]]
    device: str
    at_once: int = 1
    hours: float = 24


def checked_options(options: Options) -> Options:
    """What is asked for, if it can be, whatever the SAEs.

    Returns:
        The options, with files and folders named from the root.

    Raises:
        UserError: If an evaluation, a setting, a file or a key is missing or not fit.
    """
    of_sae_lens = (SAE_LENS, KNOWN_FEATURES)  # which of them depends on the SAE
    wanted = [*options.sae_bench, *(of_sae_lens if options.sae_lens else ())]
    for name in options.sae_bench:
        changes = options.changes.get(name, {})
        sae_bench_settings(find_evaluation(name), options.model or "", changes)
    for name, changes in options.changes.items():
        if name not in wanted:
            raise UserError(
                f"`--set {name}.{next(iter(changes))}` should be of an evaluation that is run. "
                f"These are: {', '.join(wanted) or 'none'}."
            )
    for name in of_sae_lens:
        counted_settings(name, options.changes.get(name, {}))
    if options.hours <= 0:
        raise UserError(f"`hours` should be positive. Found {options.hours:g}.")
    if "autointerp" in options.sae_bench and not os.environ.get(API_KEY):
        raise UserError(f"autointerp asks a language model: it needs a key in {API_KEY}.")
    _check_files(options)
    changes = {
        name: {key: _from_root(value) for key, value in each.items()}
        for name, each in options.changes.items()
    }
    model, text = _from_root(options.model), _from_root(options.text)
    return replace(options, model=model, text=text, changes=changes)


def _check_files(options: Options) -> None:
    if options.out.exists() and not options.out.is_dir():
        raise UserError(f"`out` should be a folder. Found a file: {options.out}.")
    if options.data is not None:
        if not options.data.is_dir():
            raise UserError(f"`data` should be a folder. Found {options.data}.")
        if options.data.resolve().is_relative_to(options.out.resolve()):
            raise UserError(f"`data` should not lie in `out`. Found {options.data}.")
    text = options.text
    if text is not None and text != OFFLINE_DATASET:
        read_text(text)


def _from_root(value: Any) -> Any:
    """The path of a file that exists, which a process elsewhere finds too; else the same."""
    if isinstance(value, str) and value and Path(value).exists():
        return str(Path(value).resolve())
    return value
