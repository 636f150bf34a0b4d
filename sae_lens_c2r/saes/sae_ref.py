"""References to SAEs: in a folder, in a repository on the Hub, or in SAELens's releases."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any
from unittest.mock import patch

import torch
from pydantic import AfterValidator, ConfigDict, PlainSerializer
from sae_lens import SAE, TrainingSAE
from sae_lens.constants import (
    ACTIVATION_SCALER_CFG_FILENAME,
    ACTIVATION_WHITENING_FILENAME,
    RUNNER_CFG_FILENAME,
    SAE_CFG_FILENAME,
    SAE_WEIGHTS_FILENAME,
)
from sae_lens.loading import pretrained_sae_loaders
from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY
from sae_lens.training.activation_scaler import ActivationScaler

from sae_lens_c2r._support.errors import UserError, reason
from sae_lens_c2r._support.files import read_object
from sae_lens_c2r._support.remote_code import harmless_options
from sae_lens_c2r.models.loading import name_as_transformers_does
from sae_lens_c2r.models.reading import complete
from sae_lens_c2r.saes.start_from import NEEDS_ESTIMATE

SAE_FILES = (
    *(SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME),
    *(ACTIVATION_SCALER_CFG_FILENAME, ACTIVATION_WHITENING_FILENAME),
)
_Folder = Annotated[Path, AfterValidator(Path.expanduser), PlainSerializer(str)]
RECORD = "training.json"  # which our training writes beside an SAE
_DOWNLOAD = "hf_hub_download"  # by which SAELens's loaders get every file


@dataclass(frozen=True)
class SAERef:
    """An SAE that can be loaded. Releases have it as `init`, records as `started_from`."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    release: str | None = None  # of SAELens's, or a repository on the Hub; or
    folder: _Folder | None = None  # where it lies
    sae_id: str | None = None  # in the release or the repository
    repo: str | None = None  # on the Hub
    revision: str | None = None  # of that; `None` for what the Hub has today
    # Of its files, by their names. If there are any, it is to be loaded from no others.
    sha256: dict[str, str] = field(default_factory=dict, hash=False)
    license: str | None = None  # as far as that is known

    @property
    def source(self) -> str:
        """The release or the repository; empty for a folder."""
        return self.release or self.repo or ""

    @property
    def name(self) -> str:
        """The name that it is shown by."""
        at = f"@{self.revision}" if self.revision else ""
        return str(self.folder) if self.folder else f"{self.source}{at} {self.sae_id}"

    @property
    def address(self) -> dict[str, str]:
        """The key `init` of a release that starts from it, once it is pinned."""
        if self.folder is not None:
            return {"folder": str(self.folder)}
        # SAELens knows a repository by the name of its release, or else by its own.
        key = "repo" if self.repo == self.release else "release"
        place = {key: self.source, "sae_id": self.sae_id, "revision": self.revision}
        return {key: value for key, value in place.items() if value is not None}

    def load(self, device: str) -> SAE[Any]:
        """Load it, without what its authors say that may have their code run."""
        sae = self._load(device)
        name_as_transformers_does(sae.cfg.metadata)
        if options := sae.cfg.metadata.model_from_pretrained_kwargs:
            options = harmless_options(options, self.name)
            sae.cfg.metadata.model_from_pretrained_kwargs = options
        return sae

    def _load(self, device: str) -> SAE[Any]:
        try:
            if self.folder is None:
                with downloads(self.revision):
                    return SAE.from_pretrained(self.source, self.sae_id or "", device=device)
            form: Any = TrainingSAE if is_training_form(self.folder) else SAE
            sae: SAE[Any] = form.load_from_disk(self.folder, device=device)
            scaling = self.folder / ACTIVATION_SCALER_CFG_FILENAME
            is_scaled = form is TrainingSAE or sae.cfg.normalize_activations in NEEDS_ESTIMATE
            if is_scaled and scaling.is_file():
                scaler = ActivationScaler()
                scaler.load(scaling)
                fold_scaling(sae, scaler)
            for settings in _settings_beside(self.folder):
                complete(sae.cfg.metadata, settings)
            return sae
        except Exception as error:  # SAELens, safetensors and the Hub raise many kinds
            more = "" if self.folder else f" There is no folder {self.source} either."
            why = f"cannot be loaded. {reason(error)}{more}"
            raise UserError(why, of=self.name) from error

    def load_for_inference(self, device: str) -> SAE[Any]:
        """Load it in the form in which anybody uses it: without training, norms folded."""
        # Folded on a CPU, weights have the same bits, and the same hash, on every device.
        return inference_form(self.load("cpu")).to(device)


def _settings_beside(folder: Path) -> Iterator[dict[str, Any]]:
    """The settings of an SAE's training that lie beside it, as we write them, or SAELens."""
    # SAELens's metadata lack some that decide which activations an SAE sees.
    if (folder / RECORD).is_file():
        settings = read_object(folder / RECORD).get("settings") or {}
        if settings.keys() >= {"source", "runner"}:
            yield settings
    if (folder / RUNNER_CFG_FILENAME).is_file():
        yield {"source": {}, "runner": read_object(folder / RUNNER_CFG_FILENAME)}


def check_scaled(sae: SAE[Any], *, of: object = "") -> None:
    """Raise a UserError if its inputs were scaled in training, and nothing says by how much."""
    mode = sae.cfg.normalize_activations
    if mode in NEEDS_ESTIMATE:
        should = f"be none, or {ACTIVATION_SCALER_CFG_FILENAME} lie beside the weights"
        raise UserError("normalize_activations", should, repr(mode), of=of)


def inference_form(sae: SAE[Any], *, fold: bool = True) -> SAE[Any]:
    """An SAE as anybody uses it, rows of its decoder folded to norm 1; it may be changed."""
    if isinstance(sae, TrainingSAE):
        with TemporaryDirectory() as folder:
            sae.save_inference_model(folder)
            sae = SAE.load_from_disk(folder, device=str(sae.device))
    norms = sae.W_dec.norm(dim=-1)
    if fold and not torch.allclose(norms, torch.ones_like(norms)):
        # SAELens divides by no less than 1e-8, which is 0 in float16.
        divides_by_0 = sae.dtype == torch.float16 and not norms.all()
        if divides_by_0:
            sae.to(torch.float32)
        # SAELens refuses where folding would change which latents fire: TopK that ranks
        # latents without their norms, and Matching Pursuit.
        with suppress(NotImplementedError):
            sae.fold_W_dec_norm()  # type: ignore[no-untyped-call]
        if divides_by_0:
            sae.to(torch.float16)
    return sae


def find_saes(
    arguments: Sequence[str], *, on_error: Callable[[UserError], None]
) -> list[SAERef]:
    """Read which SAEs a command line names."""
    saes: list[SAERef] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if folders := sae_folders(Path(argument)):
            saes += [SAERef(folder=folder) for folder in folders]
        elif rest and not Path(rest[0]).is_dir():
            release, _, revision = argument.partition("@")
            saes.append(SAERef(release, sae_id=rest.pop(0), revision=revision or None))
        else:
            should = "be a folder of SAEs, or a release followed by an SAE's id"
            on_error(UserError(Path(argument), should))
    return list(dict.fromkeys(saes))


def find_sae(arguments: Sequence[str]) -> SAERef:
    """The one SAE that a command line names; a UserError if it names none or several."""
    problems: list[UserError] = []
    refs = find_saes(arguments, on_error=problems.append)
    if problems:
        raise problems[0]
    if len(refs) != 1:
        raise UserError("SAE", "be one SAE", f"{len(refs)} of them")
    return refs[0]


def sae_folders(root: Path) -> list[Path]:
    """The folders of SAEs in a folder, which may be one itself."""
    inside = (path.relative_to(root).parent for path in root.rglob(SAE_CFG_FILENAME))
    # What training keeps to be resumed is in a hidden folder.
    shown = (each for each in inside if not any(name.startswith(".") for name in each.parts))
    return sorted(root / each for each in shown)


def is_training_form(folder: Path) -> bool:
    """Whether SAELens loads what a folder holds as a `TrainingSAE`."""
    config = read_object(folder / SAE_CFG_FILENAME)
    architecture = str(config.get("architecture"))  # old configs have none
    alone = architecture not in SAE_CLASS_REGISTRY or "decoder_init_norm" in config
    return alone and architecture in SAE_TRAINING_CLASS_REGISTRY


def fold_scaling(sae: SAE[Any], scaler: ActivationScaler) -> None:
    """Put what an SAE's inputs were scaled by into its weights, as SAELens's trainer does."""
    if scaler.scaling_factor is not None:
        sae.fold_activation_norm_scaling_factor(scaler.scaling_factor)
    if (white := scaler.whitening) is not None:
        sae.fold_activation_whitening(white.mean, white.matrix, white.inverse_matrix)


@contextmanager
def downloads(revision: str | None) -> Iterator[list[Path]]:
    """Have SAELens load SAEs as of a revision, which it cannot be asked for; list the files."""
    files: list[Path] = []
    download = vars(pretrained_sae_loaders)[_DOWNLOAD]

    def noted(*arguments: Any, **options: Any) -> str:
        if revision is not None:
            options["revision"] = revision
        path: str = download(*arguments, **options)
        files.append(Path(path))
        return path

    with patch.object(pretrained_sae_loaders, _DOWNLOAD, noted):
        yield files
