"""Which evaluations are asked for of an SAE, and what each of them is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sae_lens import SAE

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.evaluation.catalog import SAE_LENS, WEIGHTS, find_evaluation
from sae_lens_c2r.evaluation.results import About, write_result
from sae_lens_c2r.evaluation.settings import sae_bench_settings, sae_lens_settings
from sae_lens_c2r.evaluation.weights import weights_result, weights_sha256
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.sources import Source

_PACKAGES = (
    *("sae-lens-c2r", "sae-lens", "sae-bench"),
    *("transformer-lens", "transformers", "torch"),
)


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
        about: What it is of, and how.
        source: Where the SAE comes from.
        folder: Where its result belongs.
    """

    about: About
    source: Source
    folder: Path

    @property
    def title(self) -> str:
        """What it is called where it is shown."""
        return f"{self.about.evaluation} of {self.about.name}"


def check(options: Options) -> None:
    """Check what is asked for, whatever the SAEs.

    Args:
        options: What is asked for.

    Raises:
        UserError: If an evaluation, a setting or a folder does not exist.
    """
    for name in options.sae_bench:
        changes = options.changes.get(name, {})
        sae_bench_settings(find_evaluation(name), options.model or "", changes)
    sae_lens_settings(options.changes.get(SAE_LENS, {}))
    if options.data is not None and not options.data.is_dir():
        raise UserError(f"`data` should be a folder. Found {options.data}.")


def plan(source: Source, options: Options, *, on_error: Callable[[str], None]) -> list[Task]:
    """Load an SAE, write what its weights say, and list its evaluations.

    Args:
        source: The SAE.
        options: What is asked for.
        on_error: Told of each evaluation that cannot be of this SAE.

    Returns:
        The evaluations that can.

    Raises:
        UserError: If the SAE cannot be loaded, or says too little of itself.
    """
    sae = source.load_for_inference("cpu")
    try:
        inspection = inspect_sae(sae, source.name)
    except ValueError as error:
        raise UserError(f"{source.name}: {error}") from error
    digest = weights_sha256(sae)
    folder = options.out / f"{_file_name(source.name)}-{digest[:8]}"
    about = About(
        name=source.name,
        weights_sha256=digest,
        architecture=inspection.architecture,
        trained_as=inspection.trained_as,
        d_in=inspection.d_in,
        d_sae=inspection.d_sae,
        evaluation=WEIGHTS,
        model=None,
        settings={},
        versions=_versions(),
        seconds=0.0,
        device="cpu",
    )
    write_result(folder / WEIGHTS, about, weights_result(inspection))
    wanted = [*([SAE_LENS] if options.sae_lens else []), *dict.fromkeys(options.sae_bench)]
    if not wanted:
        return []
    model = options.model or sae.cfg.metadata.model_name
    if not model or not sae.cfg.metadata.hook_name:
        lacks = "hook_name" if model else "model_name, and `model` is not given"
        raise UserError(f"{source.name}: its config lacks a {lacks}.")
    about = replace(about, model=model, device=options.device)
    tasks = []
    for name in wanted:
        changes = options.changes.get(name, {})
        if name == SAE_LENS:
            settings = {**sae_lens_settings(changes), "text": options.text}
        else:
            settings = sae_bench_settings(find_evaluation(name), model, changes)
            reason = _misfit(sae, model)
            if reason is not None:
                on_error(f"{name} of {source.name}: {reason}")
                continue
        task = Task(replace(about, evaluation=name, settings=settings), source, folder / name)
        tasks.append(task)
    return tasks


def _misfit(sae: SAE[Any], model: str) -> str | None:
    """Why SAEBench could not evaluate an SAE with a model, as far as the config tells."""
    from transformer_lens.loading_from_pretrained import get_pretrained_model_config

    hook_name = sae.cfg.metadata.hook_name or ""
    try:
        config = get_pretrained_model_config(model)
    except Exception as error:  # transformers, the Hub and TransformerLens raise many kinds
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"`model` should be one that TransformerLens loads. Found {model}. {reason}"
    parts = hook_name.split(".")
    if len(parts) < 2 or parts[0] != "blocks" or not parts[1].isdecimal():
        return (
            "the SAE's hook should be one of TransformerLens's blocks, such as "
            f"blocks.0.hook_resid_post. Found {hook_name}."
        )
    if int(parts[1]) >= config.n_layers:
        return f"`model` should have the hook {hook_name}. It has {config.n_layers} layers."
    if "resid" in hook_name and sae.cfg.d_in != config.d_model:
        return (
            f"the SAE should have inputs of the model's width, {config.d_model} in {model}. "
            f"Found {sae.cfg.d_in}."
        )
    return None


def _file_name(name: str) -> str:
    kept = "".join(char if char.isalnum() or char in "._-" else "_" for char in name)
    return kept.strip("._")[-60:].lstrip("._") or "sae"


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
