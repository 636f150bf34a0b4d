"""Where SAEs come from that a command names: folders on disk, and the Hub."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from sae_lens import SAE, TrainingSAE
from sae_lens.constants import ACTIVATION_SCALER_CFG_FILENAME, SAE_CFG_FILENAME
from sae_lens.registry import SAE_CLASS_REGISTRY, SAE_TRAINING_CLASS_REGISTRY
from sae_lens.training.activation_scaler import ActivationScaler

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.network import needing_the_hub
from sae_lens_c2r._support.reading import read_object
from sae_lens_c2r.saes.downloads import downloads


@dataclass(frozen=True)
class Source:
    """An SAE that can be loaded.

    Args:
        name: What it is called where it is shown.
        folder: Where it lies, or
        release: the release that SAELens loads it from, with
        sae_id: its id there, and
        revision: the commit of the repository; `None` for what the Hub has today.
    """

    name: str
    folder: Path | None = None
    release: str | None = None
    sae_id: str | None = None
    revision: str | None = None

    @property
    def place(self) -> Path | tuple[str | None, ...]:
        """What tells it from all others, whatever it is called."""
        if self.folder:
            return self.folder.resolve()
        return (self.release, self.sae_id, self.revision)

    def load(self, device: str) -> SAE[Any] | TrainingSAE[Any]:
        """Load it.

        Args:
            device: Where to.

        Returns:
            The SAE, in the form in which it was saved; a checkpoint of SAELens's with the
            scaling of its inputs folded in, as SAELens does at the end of a training.

        Raises:
            UserError: If it cannot be loaded.
        """
        try:
            if self.folder is None:
                with downloads(self.revision), needing_the_hub(self.name):
                    return SAE.from_pretrained(
                        self.release or "", self.sae_id or "", device=device
                    )
            if not is_training_form(self.folder):
                return SAE.load_from_disk(self.folder, device=device)
            trained: TrainingSAE[Any] = TrainingSAE.load_from_disk(self.folder, device=device)
            _fold_scaling(trained, self.folder)
            return trained
        except Exception as error:  # SAELens, safetensors and the Hub raise many kinds
            reason = one_line(error)
            if self.folder is None:
                reason += f" There is no folder {self.release} either."
            raise UserError(f"{self.name}: cannot be loaded. {reason}") from error

    def load_for_inference(self, device: str) -> SAE[Any]:
        """Load it in the form in which anybody uses it: without training, norms folded.

        Args:
            device: Where to.

        Returns:
            The SAE. One in its training form is turned into what SAELens saves of it.

        Raises:
            UserError: If it cannot be loaded.
        """
        return inference_form(self.load(device))


def inference_form(sae: SAE[Any] | TrainingSAE[Any], *, fold: bool = True) -> SAE[Any]:
    """An SAE as anybody uses it; in place if it is in its inference form.

    Args:
        sae: The SAE.
        fold: Whether to fold the norms of its decoder's rows.

    Returns:
        The SAE in its inference form.
    """
    if isinstance(sae, TrainingSAE):
        with TemporaryDirectory() as folder:
            sae.save_inference_model(folder)
            sae = SAE.load_from_disk(folder, device=str(sae.device))
    norms = sae.W_dec.norm(dim=-1)
    if fold and not torch.allclose(norms, torch.ones_like(norms)):
        # SAELens refuses where folding would change which latents fire: TopK that ranks
        # latents without their norms, and Matching Pursuit.
        with suppress(NotImplementedError):
            sae.fold_W_dec_norm()  # type: ignore[no-untyped-call]
    return sae


def find_sources(arguments: Sequence[str], *, on_error: Callable[[str], None]) -> list[Source]:
    """Read what a command line names.

    Args:
        arguments: Folders, each of an SAE or of many, and pairs of a release and an id.
        on_error: Told, in one line, of each that is neither.

    Returns:
        The other SAEs, in order, each once.
    """
    sources: list[Source] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if Path(argument).is_dir():
            folders = sae_folders(Path(argument))
            if not folders:
                on_error(f"{argument}: should have a {SAE_CFG_FILENAME}, or folders with one.")
            sources += [Source(str(folder), folder) for folder in folders]
        elif rest and not Path(rest[0]).is_dir() and not Path(argument).exists():
            sae_id = rest.pop(0)
            sources.append(Source(f"{argument} {sae_id}", release=argument, sae_id=sae_id))
        else:
            on_error(f"{argument}: should be a folder, or a release followed by an SAE's id.")
    return list(dict.fromkeys(sources))


def source_of_folder(folder: str) -> Source:
    """The one SAE that a folder holds; a UserError if it holds none."""
    if not (Path(folder) / SAE_CFG_FILENAME).is_file():
        raise UserError(f"{folder}: should be a folder with a {SAE_CFG_FILENAME}.")
    return Source(folder, Path(folder))


def sae_folders(root: Path) -> list[Path]:
    """The folders of SAEs in a folder, which may be one itself."""
    found = sorted(path.parent for path in root.rglob(SAE_CFG_FILENAME) if path.is_file())
    # What training keeps to be resumed is in a hidden folder.
    return [
        folder
        for folder in found
        if not any(part.startswith(".") for part in folder.relative_to(root).parts)
    ]


def _fold_scaling(sae: TrainingSAE[Any], checkpoint: Path) -> None:
    if not (checkpoint / ACTIVATION_SCALER_CFG_FILENAME).is_file():
        return
    scaler = ActivationScaler()
    scaler.load(checkpoint / ACTIVATION_SCALER_CFG_FILENAME)
    if scaler.scaling_factor is not None:
        sae.fold_activation_norm_scaling_factor(scaler.scaling_factor)
    if scaler.whitening is not None:
        whitening = scaler.whitening
        sae.fold_activation_whitening(
            whitening.mean, whitening.matrix, whitening.inverse_matrix
        )


def is_training_form(folder: Path) -> bool:
    """Whether SAELens loads what a folder holds as a `TrainingSAE`."""
    config = read_object(folder / SAE_CFG_FILENAME)
    architecture = config.get("architecture")
    known = {*SAE_CLASS_REGISTRY, *SAE_TRAINING_CLASS_REGISTRY}
    if isinstance(architecture, str) and architecture not in known:
        raise UserError(
            f"`architecture` in {SAE_CFG_FILENAME} should be one of SAELens's or ours: "
            f"{', '.join(sorted(known))}. Found {architecture}."
        )
    return (
        isinstance(architecture, str)
        and architecture in SAE_TRAINING_CLASS_REGISTRY
        and (architecture not in SAE_CLASS_REGISTRY or "decoder_init_norm" in config)
    )
