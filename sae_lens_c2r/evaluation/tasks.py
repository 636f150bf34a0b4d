"""Which evaluations are asked for of an SAE, and where the result of each belongs."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError, error_of
from sae_lens_c2r._support.files import is_there, sha256_of
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r._support.remote_code import TRUSTED
from sae_lens_c2r.evaluation.catalog import ABSORPTION, EVALUATIONS, RAVEL
from sae_lens_c2r.evaluation.report import read_about
from sae_lens_c2r.evaluation.settings import Options, from_root, settings_of
from sae_lens_c2r.inspection.activations import check_reconstructs
from sae_lens_c2r.models.loading import (
    check_model_name,
    options_for,
    output_of_block,
    residual_width,
)
from sae_lens_c2r.models.offline import is_model
from sae_lens_c2r.models.reading import TRANSFORMER_LENS, TRANSFORMERS, Reading
from sae_lens_c2r.models.text_source import OFFLINE_DATASET, PARTS
from sae_lens_c2r.saes.hashes import earlier_config_hash, sae_hashes
from sae_lens_c2r.saes.record import (
    SAE_LENS,
    WEIGHTS,
    Evaluation,
    SAERecord,
    read_record,
)
from sae_lens_c2r.saes.sae_ref import SAERef

_PACKAGES = (
    *("sae-lens-c2r", "sae-lens", "sae-bench"),
    *("transformer-lens", "transformers", "torch"),
)
_residual_width = lru_cache(residual_width)  # of many SAEs alike
_NAME_LENGTH, _HASH_LENGTH = 60, 8
_BLOCK = re.compile(r"blocks\.\d+\.hook_resid_post")
_ASKED = {"model", "text", "settings", "inputs", "reading"}  # what may change the numbers
_SINCE = {  # where an earlier version had other numbers
    SAE_LENS: ["where the SAE was trained"],
    "core": ["without its explained variance"],
}
_SINCE_OF_OPTIONS = "with the model's options"  # SAEBench's others
_GIVEN = {"dtype", "torch_dtype", "device"}  # options of a model that SAEBench gives itself


class Task(BaseModel, frozen=True):
    """An evaluation to be run, as it is passed to the process that runs it."""

    name: str
    sae: SAERecord  # without evaluations
    earlier: str  # its config's hash as it was, by which older results are found
    asked: Evaluation  # without metrics
    device: str
    source: SAERef  # from the root
    home: Path  # of the SAE's evaluations
    shared: dict[str, Any] = {}  # what else SAEs are to share to be evaluated together
    trust_remote_code: bool = Field(default_factory=lambda: TRUSTED.get())

    @property
    def title(self) -> str:
        """The evaluation's name where it is shown."""
        return f"{self.name} of {self.sae.name}"

    @property
    def group(self) -> str:
        """One for all SAEs that are evaluated together, since they share all else."""
        asked = self.asked.model_dump(mode="json", include={"model", "text", "settings"})
        return json.dumps([self.name, asked, self.shared], sort_keys=True)

    @property
    def key(self) -> str:
        """A short name of the SAE, for files of an evaluation."""
        return self.home.name[-_HASH_LENGTH:]

    @property
    def folder(self) -> Path:
        """Folder of the result, named by the hash of all that is asked."""
        asked = self.asked.model_dump(mode="json", include=_ASKED)
        since = _SINCE.get(self.name, [])
        options = self.shared.get("model_from_pretrained_kwargs") or {}
        if self.name in EVALUATIONS and any(without_given(options).values()):
            since = [*since, _SINCE_OF_OPTIONS]
        folders = []
        for config_sha256 in (self.earlier, self.sae.config_sha256):
            of_all = json.dumps(
                [self.sae.weights_sha256, config_sha256, asked, *since], sort_keys=True
            )
            digest = sha256(of_all.encode()).hexdigest()[:_HASH_LENGTH]
            folders.append(self.home / f"{self.name}-{digest}")
        return next(filter(Path.is_dir, folders), folders[-1])

    @property
    def is_answered(self) -> bool:
        """Whether the folder has a result."""
        return read_about(self.folder) is not None


def without_given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a model but for those that SAEBench gives itself."""
    return {key: value for key, value in options.items() if key not in _GIVEN}


Measure = Callable[[Task, SAE[Any]], dict[str, Any]]  # of an SAE, which its task names


def tasks_of(
    source: SAERef, sae: SAE[Any], options: Options, *, on_error: Callable[[UserError], None]
) -> list[Task]:
    """The evaluations of an SAE in its inference form, first that of its weights alone."""
    of_weights = _of_weights(source, sae, options)
    tasks = [of_weights]
    record = read_record(source.folder) if source.folder else SAERecord()
    for name in [*([SAE_LENS] if options.sae_lens else []), *options.sae_bench]:
        task = of_weights.model_copy(update={"name": name})
        try:
            asked, shared = _asked(name, sae, options, record)
        except Exception as error:  # transformers, the Hub and TransformerLens raise many
            on_error(error_of(task.title, error))
            continue
        if asked["settings"].get("full_dataset_downsample"):  # RAVEL's first SAE alone draws it
            shared["home"] = str(task.home)
        evaluation = task.asked.model_copy(update=asked)
        tasks.append(task.model_copy(update={"asked": evaluation, "shared": shared}))
    return tasks


def _of_weights(source: SAERef, sae: SAE[Any], options: Options) -> Task:
    """The evaluation of an SAE's weights, of which the others are made."""
    (weights_sha256, config_sha256), earlier = sae_hashes(sae), earlier_config_hash(sae)
    described = SAERecord(
        weights_sha256=weights_sha256,
        config_sha256=config_sha256,
        name=source.name,
        architecture=sae.cfg.architecture(),
        trained_as=sae.cfg.metadata.training_architecture,
        d_in=sae.cfg.d_in,
        d_sae=sae.cfg.d_sae,
        evaluations={},
    )
    # A name that tells an SAE from all others, however they are called.
    places = [f"{source.place} {weights_sha256} {each}" for each in (earlier, config_sha256)]
    kept = "".join(char if char.isalnum() or char in "._-" else "_" for char in source.name)
    name = kept[-_NAME_LENGTH:].strip("._-") or "sae"
    digests = [sha256(place.encode()).hexdigest()[:_HASH_LENGTH] for place in places]
    out = options.out.resolve()  # where it may have been called by another path
    homes = [home for digest in digests for home in sorted(out.glob(f"*-{digest}"))]
    versions = package_versions(*_PACKAGES)
    return Task(
        name=WEIGHTS,
        sae=described,
        earlier=earlier,
        asked=Evaluation(device=options.device, versions=versions, metrics={}),
        device=options.device,
        source=replace(source, folder=source.folder and source.folder.resolve()),
        home=next(filter(Path.is_dir, homes), out / f"{name}-{digests[-1]}"),
    )


def _asked(
    name: str, sae: SAE[Any], options: Options, record: SAERecord
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The request of an evaluation, and all else that SAEs share to be evaluated together."""
    asked = _of_language_model(name, sae, options, record)
    shared = asked.pop("shared")
    settings = settings_of(
        name, options.overrides, model=asked.get("model"), device=options.device
    )
    asked["settings"] = settings | asked.pop("part", {})
    return asked, shared


def _of_language_model(
    name: str, sae: SAE[Any], options: Options, record: SAERecord
) -> dict[str, Any]:
    check_reconstructs(sae)
    metadata, reading = sae.cfg.metadata, Reading.of(sae.cfg.metadata)
    names = [metadata.model_name, metadata.dataset_path] if record.from_disk is not None else []
    of_hub = [each for each in names if each not in (record.from_disk or ())]  # in training
    model, hook_name = options.model or metadata.model_name, metadata.hook_name
    if is_model(model) and (options.model or model not in of_hub):
        model = from_root(model)  # an evaluation runs in a folder of its own
    for field, value, should in (
        ("model", model, "be given, or else `metadata.model_name` be a name"),
        ("metadata.hook_name", hook_name, "be a name"),
    ):
        if not isinstance(value, str) or not value:
            raise UserError(field, should, value)
    said = metadata.model_from_pretrained_kwargs or {}
    options_of_model = options_for(str(model), said, of=metadata.model_name)
    check_model_name(str(model), "model" if options.model else "metadata.model_name")
    text: str | None = None
    reads: str | None = None
    part: dict[str, Any] = {}
    if name == SAE_LENS:
        text, trained_on = options.text, str(metadata.dataset_path or "")
        if text is None:
            part = {key: metadata.get(f"dataset_{key}") for key in PARTS}
            if trained_on not in (OFFLINE_DATASET, *of_hub) and is_there(trained_on):
                text = from_root(trained_on)
        part = {key: value for key, value in {**part, **options.part}.items() if value}
        reads = text or trained_on
    else:  # SAEBench finds no other hook and no other width
        loader, revision = TRANSFORMER_LENS, None
        if metadata.model_class_name == TRANSFORMERS:
            output_of_block(str(hook_name))
            loader, revision = TRANSFORMERS, options_of_model.get("revision")
        elif name in (ABSORPTION, RAVEL) and not _BLOCK.fullmatch(str(hook_name)):
            should = f"be like blocks.8.hook_resid_post: SAEBench's {name} reads no others"
            raise UserError("metadata.hook_name", should, hook_name)
        width = _residual_width(str(model), str(hook_name), loader, revision)
        if width not in (None, sae.cfg.d_in):
            raise UserError("d_in", f"be the model's width, {width} in {model}", sae.cfg.d_in)
    changed = (v for key, v in options.overrides.items() if key.startswith(f"{name}."))
    named = (Path(str(each)) for each in (model, *changed, reads))
    paths = [path for path in named if path.is_absolute() and path.exists()]
    inputs = {str(path): _fingerprint(path, without=options.out.resolve()) for path in paths}
    shared = {**reading.model_dump(mode="json"), "reads": reads, "inputs": inputs}
    shared["model_from_pretrained_kwargs"] = options_of_model
    asked = {"model": model, "text": text, "part": part, "inputs": inputs, "shared": shared}
    return asked | ({"reading": reading.model_dump(mode="json")} if name == SAE_LENS else {})


def _fingerprint(path: Path, *, without: Path) -> str:
    """Hash the content of a file, or the names, sizes and times of a folder's files."""
    if path.is_file():
        return sha256_of(path)
    digest = sha256()
    for inside in sorted(path.rglob("*")):
        if inside.is_file() and not inside.is_relative_to(without):
            stat, name = inside.stat(), inside.relative_to(path)
            digest.update(f"{name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
