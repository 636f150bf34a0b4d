"""Which evaluations are asked for of an SAE, and what each of them is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.versions import package_versions
from sae_lens_c2r.evaluation.about import About, Asked
from sae_lens_c2r.evaluation.catalog import KNOWN_FEATURES, SAE_LENS, WEIGHTS, find_evaluation
from sae_lens_c2r.evaluation.eval_settings import counted_settings, sae_bench_settings
from sae_lens_c2r.evaluation.features import features_config, record_of_features
from sae_lens_c2r.evaluation.fit import check_fit
from sae_lens_c2r.evaluation.hashing import config_sha256, fingerprint, weights_sha256
from sae_lens_c2r.evaluation.options import Options
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.record import RECORD, TrainingRecord

_PACKAGES = (
    *("sae-lens-c2r", "sae-lens", "sae-bench"),
    *("transformer-lens", "transformers", "torch"),
)
_NAME_LENGTH = 60


@dataclass(frozen=True)
class Task:
    """An evaluation to be run, which can be told to another process.

    Args:
        about: What is asked, and of which SAE.
        source: Where the SAE comes from, from the root.
        folder: Where its result belongs.
    """

    about: About
    source: SAERef
    folder: Path

    @property
    def title(self) -> str:
        """What it is called where it is shown."""
        return f"{self.about.asked.evaluation} of {self.about.name}"

    def write(self, path: Path) -> None:
        """Write it for another process."""
        path.write_bytes(TypeAdapter(Task).dump_json(self))

    @classmethod
    def read(cls, path: Path) -> "Task":
        """What another process wrote."""
        return TypeAdapter(Task).validate_json(path.read_bytes())

    def asking(self, asked: Asked) -> "Task":
        """Another evaluation of the same SAE, whose result belongs beside that of this one."""
        about = self.about.model_copy(update={"asked": asked})
        return Task(about, self.source, self.folder.with_name(asked.evaluation))


def weights_task(source: SAERef, sae: SAE[Any], options: Options) -> Task:
    """The evaluation of the weights alone of an SAE in its inference form."""
    asked = Asked(
        weights_sha256=weights_sha256(sae),
        config_sha256=config_sha256(sae.cfg),
        evaluation=WEIGHTS,
        model=None,
        text=None,
        settings={},
        inputs={},
    )
    about = About(
        asked=asked,
        name=source.name,
        architecture=sae.cfg.architecture(),
        trained_as=sae.cfg.metadata.training_architecture,
        d_in=sae.cfg.d_in,
        d_sae=sae.cfg.d_sae,
        device=options.device,
        versions=package_versions(*_PACKAGES),
        seconds=0.0,
    )
    where = replace(source, folder=source.folder and source.folder.resolve())
    return Task(about, where, options.out / _folder_name(source, asked) / WEIGHTS)


def model_tasks(
    of_weights: Task, sae: SAE[Any], options: Options, *, on_error: Callable[[str], None]
) -> list[Task]:
    """The evaluations of an SAE that need what it was trained on: a model, or known features.

    Args:
        of_weights: That of its weights.
        sae: The SAE.
        options: What is asked for, checked.
        on_error: Told of each evaluation that cannot be of this SAE.

    Returns:
        Those that can.

    Raises:
        UserError: If the SAE does not say of which model and hook it is.
    """
    wanted = [*([SAE_LENS] if options.sae_lens else []), *options.sae_bench]
    if not wanted:
        return []
    record = record_of_features(of_weights.source)
    if record is not None:
        return _feature_tasks(of_weights, record, options, on_error=on_error)
    model, hook_name = options.model or sae.cfg.metadata.model_name, sae.cfg.metadata.hook_name
    should = {
        "`model` should be given, or its config have a name as `metadata.model_name`": model,
        "its config should have a name as `metadata.hook_name`": hook_name,
    }
    for what, value in should.items():
        if not isinstance(value, str) or not value:
            raise UserError(f"{of_weights.about.name}: {what}. Found {value}.")
    tasks = []
    for name in wanted:
        of_evaluation = _of_sae_lens if name == SAE_LENS else _of_sae_bench
        try:
            asked = of_evaluation(name, sae, model, options)
        except UserError as error:
            on_error(f"{name} of {of_weights.about.name}: {error}")
            continue
        tasks.append(of_weights.asking(of_weights.about.asked.model_copy(update=asked)))
    return tasks


def _feature_tasks(
    of_weights: Task,
    record: TrainingRecord,
    options: Options,
    *,
    on_error: Callable[[str], None],
) -> list[Task]:
    """That of an SAE of known features, which takes the place of SAELens's own."""
    name = of_weights.about.name
    for evaluation in options.sae_bench:
        on_error(f"{evaluation} of {name}: it needs a language model. Found known features.")
    if not options.sae_lens:
        return []
    try:
        features_config(record, options.device)
    except UserError as error:
        raise UserError(f"{KNOWN_FEATURES} of {name}: {error}") from None
    assert of_weights.source.folder is not None, "training.json lies in it"
    asked = {
        "evaluation": KNOWN_FEATURES,
        "settings": counted_settings(KNOWN_FEATURES, options.changes.get(KNOWN_FEATURES, {})),
        "inputs": {RECORD: fingerprint(of_weights.source.folder / RECORD)},
    }
    return [of_weights.asking(of_weights.about.asked.model_copy(update=asked))]


def _of_sae_lens(name: str, sae: SAE[Any], model: str, options: Options) -> dict[str, Any]:
    changes = options.changes.get(name, {})
    text = options.text or sae.cfg.metadata.dataset_path
    return {
        "evaluation": name,
        "model": model,
        "text": options.text,
        "settings": counted_settings(SAE_LENS, changes),
        "inputs": _fingerprints([model, *changes.values(), text]),
    }


def _of_sae_bench(name: str, sae: SAE[Any], model: str, options: Options) -> dict[str, Any]:
    changes = options.changes.get(name, {})
    check_fit(sae, model)
    data = options.data.resolve() if options.data else None
    return {
        "evaluation": name,
        "model": model,
        "settings": sae_bench_settings(find_evaluation(name), model, changes),
        "inputs": _fingerprints([model, *changes.values(), data]),
    }


def _fingerprints(inputs: Sequence[Any]) -> dict[str, str]:
    """Of those that name a file or a folder from the root."""
    paths = [Path(str(each)) for each in inputs if each]
    return {
        str(path): fingerprint(path) for path in paths if path.is_absolute() and path.exists()
    }


def _folder_name(source: SAERef, asked: Asked) -> str:
    """Of what the SAE is called, and of what tells it from all others."""
    digest = sha256(f"{source.place} {asked.weights_sha256} {asked.config_sha256}".encode())
    kept = "".join(char if char.isalnum() or char in "._-" else "_" for char in source.name)
    name = kept[-_NAME_LENGTH:].strip("._-") or "sae"
    return f"{name}-{digest.hexdigest()[:8]}"
