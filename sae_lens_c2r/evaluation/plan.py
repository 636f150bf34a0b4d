"""Which evaluations are asked for of an SAE, and what each of them is."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.about import About, Asked
from sae_lens_c2r.evaluation.catalog import API_KEY, SAE_LENS, WEIGHTS, find_evaluation
from sae_lens_c2r.evaluation.fit import check_fit
from sae_lens_c2r.evaluation.identity import config_sha256, fingerprint, weights_sha256
from sae_lens_c2r.evaluation.results import is_answered, write_result
from sae_lens_c2r.evaluation.settings import sae_bench_settings, sae_lens_settings
from sae_lens_c2r.evaluation.weights import weights_result
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.inspection.text import read_text
from sae_lens_c2r.offline.source import OFFLINE_DATASET
from sae_lens_c2r.saes.sources import Source

_PACKAGES = (
    *("sae-lens-c2r", "sae-lens", "sae-bench"),
    *("transformer-lens", "transformers", "torch"),
)
_NAME_LENGTH = 60


@dataclass(frozen=True)
class Options:
    """What is asked for.

    Args:
        out: Folder of the results.
        sae_bench: Names of SAEBench's evaluations.
        sae_lens: Whether to run SAELens's own.
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


@dataclass(frozen=True)
class Task:
    """An evaluation to be run.

    Args:
        about: What is asked, and of which SAE.
        source: Where the SAE comes from.
        folder: Where its result belongs.
    """

    about: About
    source: Source
    folder: Path

    @property
    def title(self) -> str:
        """What it is called where it is shown."""
        return f"{self.about.asked.evaluation} of {self.about.name}"


def check(options: Options) -> Options:
    """Check what is asked for, whatever the SAEs.

    Args:
        options: What is asked for.

    Returns:
        The same, with files and folders named from the root.

    Raises:
        UserError: If an evaluation, a setting, a file or a key is missing or not fit.
    """
    wanted = [*options.sae_bench, *([SAE_LENS] if options.sae_lens else [])]
    for name in options.sae_bench:
        changes = options.changes.get(name, {})
        sae_bench_settings(find_evaluation(name), options.model or "", changes)
    for name, changes in options.changes.items():
        if name not in wanted:
            raise UserError(
                f"`--set {name}.{next(iter(changes))}` should be of an evaluation that is run. "
                f"These are: {', '.join(wanted) or 'none'}."
            )
    sae_lens_settings(options.changes.get(SAE_LENS, {}))
    if options.hours <= 0:
        raise UserError(f"`hours` should be positive. Found {options.hours:g}.")
    if "autointerp" in options.sae_bench and not os.environ.get(API_KEY):
        raise UserError(f"autointerp asks a language model: it needs a key in {API_KEY}.")
    if options.out.exists() and not options.out.is_dir():
        raise UserError(f"`out` should be a folder. Found a file: {options.out}.")
    if options.data is not None:
        if not options.data.is_dir():
            raise UserError(f"`data` should be a folder. Found {options.data}.")
        if options.data.resolve().is_relative_to(options.out.resolve()):
            raise UserError(f"`data` should not lie in `out`. Found {options.data}.")
    text = options.text
    if text is not None and text != OFFLINE_DATASET:
        if Path(text).suffix in (".txt", ".jsonl", ".json") and not Path(text).is_file():
            raise UserError(f"`text` should be a file or a dataset. There is no {text}.")
        read_text(text)
    changes = {
        name: {key: _from_root(value) for key, value in each.items()}
        for name, each in options.changes.items()
    }
    return replace(
        options, model=_from_root(options.model), text=_from_root(text), changes=changes
    )


def plan(source: Source, options: Options, *, on_error: Callable[[str], None]) -> list[Task]:
    """Load an SAE, write what its weights say, and list its evaluations.

    Args:
        source: The SAE.
        options: What is asked for, checked.
        on_error: Told of each evaluation that cannot be of this SAE.

    Returns:
        The evaluations that can.

    Raises:
        UserError: If the SAE cannot be loaded, or says too little of itself.
    """
    sae = source.load_for_inference(options.device)
    of_weights = Asked(weights_sha256(sae), config_sha256(sae.cfg), WEIGHTS, None, None, {}, {})
    about = About(
        asked=of_weights,
        name=source.name,
        architecture=sae.cfg.architecture(),
        trained_as=sae.cfg.metadata.training_architecture,
        d_in=sae.cfg.d_in,
        d_sae=sae.cfg.d_sae,
        device=options.device,
        versions=_versions(),
        seconds=0.0,
    )
    folder = options.out / _folder_name(source, of_weights)
    if not is_answered(folder / WEIGHTS, of_weights):
        try:
            inspection = inspect_sae(sae, source.name)
        except ValueError as error:
            raise UserError(f"{source.name}: {error}") from error
        write_result(folder / WEIGHTS, about, weights_result(inspection))
    wanted = [*([SAE_LENS] if options.sae_lens else []), *options.sae_bench]
    if not wanted:
        return []
    model, hook_name = options.model or sae.cfg.metadata.model_name, sae.cfg.metadata.hook_name
    for name, value in {"model_name": model, "hook_name": hook_name}.items():
        if not isinstance(value, str) or not value:
            raise UserError(
                f"{source.name}: its config should have a name as `metadata.{name}`. "
                f"Found {value}."
            )
    tasks = []
    for name in wanted:
        changes = options.changes.get(name, {})
        inputs: list[str | None] = [model, *map(str, changes.values())]
        text = None
        if name == SAE_LENS:
            settings = sae_lens_settings(changes)
            text = options.text
            inputs.append(text or sae.cfg.metadata.dataset_path)
        else:
            settings = sae_bench_settings(find_evaluation(name), model, changes)
            inputs.append(str(options.data.resolve()) if options.data else None)
            try:
                check_fit(sae, model)
            except UserError as error:
                on_error(f"{name} of {source.name}: {error}")
                continue
        asked = replace(
            of_weights,
            evaluation=name,
            model=model,
            text=text,
            settings=settings,
            inputs=_fingerprints(inputs),
        )
        tasks.append(Task(replace(about, asked=asked), source, folder / name))
    return tasks


def _from_root(value: Any) -> Any:
    """The path of a file that exists, which a process elsewhere finds too; else the same."""
    if isinstance(value, str) and value and Path(value).exists():
        return str(Path(value).resolve())
    return value


def _fingerprints(inputs: Sequence[str | None]) -> dict[str, str]:
    paths = [Path(each) for each in inputs if each and Path(each).is_absolute()]
    return {str(path): fingerprint(path) for path in paths if path.exists()}


def _folder_name(source: Source, asked: Asked) -> str:
    """Of what the SAE is called, and of what tells it from all others."""
    where = source.folder.resolve() if source.folder else (source.release, source.sae_id)
    digest = sha256(f"{where} {asked.weights_sha256} {asked.config_sha256}".encode())
    kept = "".join(char if char.isalnum() or char in "._-" else "_" for char in source.name)
    name = kept[-_NAME_LENGTH:].strip("._-") or "sae"
    return f"{name}-{digest.hexdigest()[:8]}"


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
