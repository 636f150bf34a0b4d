"""Which evaluations are asked for of an SAE, and what each of them is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.about import About, Asked
from sae_lens_c2r.evaluation.catalog import SAE_LENS, WEIGHTS, find_evaluation
from sae_lens_c2r.evaluation.eval_settings import sae_bench_settings, sae_lens_settings
from sae_lens_c2r.evaluation.fit import check_fit
from sae_lens_c2r.evaluation.identity import config_sha256, fingerprint, weights_sha256
from sae_lens_c2r.evaluation.options import Options
from sae_lens_c2r.evaluation.results import is_answered, write_result
from sae_lens_c2r.evaluation.weights import weights_result
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.saes.sources import Source

_PACKAGES = (
    *("sae-lens-c2r", "sae-lens", "sae-bench"),
    *("transformer-lens", "transformers", "torch"),
)
_NAME_LENGTH = 60


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
