"""Which SAEs are to be published, and which of the files beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sae_lens import SAE, TrainingSAE
from sae_lens.constants import (
    ACTIVATION_SCALER_CFG_FILENAME,
    SAE_CFG_FILENAME,
    SAE_WEIGHTS_FILENAME,
)
from safetensors import SafetensorError
from torch import Tensor

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.hub.leaks import read_harmless
from sae_lens_c2r.hub.names import check_id, refuse_nested
from sae_lens_c2r.saes.probe import probe_inputs, trained_contributions
from sae_lens_c2r.saes.sae_ref import SAERef, inference_form, is_training_form, sae_folders
from sae_lens_c2r.training.record import RECORD, TrainingRecord, read_record

_READ = (SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME, RECORD, ACTIVATION_SCALER_CFG_FILENAME)


@dataclass(frozen=True)
class LocalSAE:
    """An SAE on this machine that can be published.

    Args:
        sae_id: Its folder on the Hub.
        folder: Its folder here, in SAELens's inference form.
        record: What training wrote of it, if it was ours.
        trained: What its training form encodes `probe_inputs` as, if it had to be converted.
    """

    sae_id: str
    folder: Path
    record: TrainingRecord | None = None
    trained: Tensor | None = None

    @property
    def config(self) -> Path:
        """SAELens's config."""
        return self.folder / SAE_CFG_FILENAME

    @property
    def weights(self) -> Path:
        """SAELens's weights."""
        return self.folder / SAE_WEIGHTS_FILENAME


def collect(paths: Sequence[Path], *, converted: Path) -> list[LocalSAE]:
    """Find the SAEs in folders.

    Args:
        paths: Folders, each of one SAE, which goes by the folder's name, or of many, which go
            by their paths in it.
        converted: Folder for the inference forms of those that are in their training form.

    Returns:
        The SAEs by their ids, in order.

    Raises:
        UserError: If there is none, two have the same id, an id is not fit for the Hub, or a
            link leads out of the folder.
    """
    found: dict[str, Path] = {}
    for path in paths:
        for sae_id, folder in _in_folder(path):
            if sae_id in found:
                raise UserError(
                    f"The SAEs' ids should differ. Found {sae_id} in {found[sae_id]} and in "
                    f"{folder}."
                )
            found[sae_id] = folder
    if not found:
        shown = ", ".join(map(str, paths))
        raise UserError(f"There should be a folder with a {SAE_CFG_FILENAME}. Found {shown}.")
    refuse_nested(found)
    return [_collected(sae_id, found[sae_id], converted) for sae_id in sorted(found)]


def collect_saes(
    saes: Mapping[str, SAE[Any] | TrainingSAE[Any]], *, converted: Path
) -> list[LocalSAE]:
    """Write SAEs that are in memory, in the form in which they are published."""
    return [
        LocalSAE(
            sae_id, converted / sae_id, trained=_convert(sae, converted / check_id(sae_id))
        )
        for sae_id, sae in sorted(saes.items())
    ]


def _convert(sae: SAE[Any] | TrainingSAE[Any], folder: Path) -> Tensor | None:
    """Write the inference form; what the training form makes of the probe, if it was one."""
    if not isinstance(sae, TrainingSAE):
        sae.save_model(folder)
        return None
    weights, _ = inference_form(sae).save_model(folder)
    return trained_contributions(sae, probe_inputs(weights)).to_sparse()


def _in_folder(path: Path) -> list[tuple[str, Path]]:
    if not path.is_dir():
        raise UserError(f"An SAE should be a folder. Found {path}.")
    pairs = []
    for folder in sae_folders(path):
        inside = folder.relative_to(path)
        _check_links(folder, path)
        sae_id = inside.as_posix() if inside.parts else path.resolve().name
        pairs.append((check_id(sae_id), folder))
    return pairs


def _check_links(folder: Path, root: Path) -> None:
    for path in (folder, *(folder / name for name in _READ)):
        try:
            inside = path.resolve().is_relative_to(root.resolve())
        except (OSError, RuntimeError):  # it leads to itself
            inside = False
        if not inside:
            raise UserError(f"A link should not lead out of {root}. Found {path}.")


def _collected(sae_id: str, folder: Path, converted: Path) -> LocalSAE:
    for name in (SAE_CFG_FILENAME, RECORD):
        if (folder / name).is_file():
            read_harmless(folder / name)  # before anything trusts it
    record = read_record(folder)
    if not is_training_form(folder):
        return LocalSAE(sae_id, folder, record)
    sae = SAERef(folder=folder).load("cpu")
    try:
        trained = _convert(sae, converted / sae_id)
    except (RuntimeError, SafetensorError, ValueError) as error:
        raise UserError(f"{folder}: has no inference form. {one_line(error)}") from error
    return LocalSAE(sae_id, converted / sae_id, record, trained)
