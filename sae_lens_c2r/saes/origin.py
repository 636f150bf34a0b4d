"""An SAE that another one starts from: exactly which, and under which licence."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, hf_hub_download
from huggingface_hub.utils.sha import sha_fileobj
from sae_lens import SAE
from sae_lens.constants import (
    ACTIVATION_SCALER_CFG_FILENAME,
    SAE_CFG_FILENAME,
    SAE_WEIGHTS_FILENAME,
)
from sae_lens.loading.pretrained_saes_directory import get_repo_id_and_folder_name

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.reading import read_object
from sae_lens_c2r.saes.downloads import commit_of, downloads
from sae_lens_c2r.saes.sources import Source, inference_form

_FILES = (SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME, ACTIVATION_SCALER_CFG_FILENAME)
_RECORD, _README = "training.json", "README.md"
_NO_DERIVATIVES = re.compile(r"(?<![a-z])nd(?![a-z])|no-?deriv", re.IGNORECASE)


@dataclass(frozen=True)
class Origin:
    """An SAE as it was when it was first loaded.

    Args:
        source: Where from; on the Hub, at the commit that it had then.
        repo: The repository on the Hub, if it is there.
        sha256: Of the files that it was loaded from, by their names.
        license: Its licence, as far as that is known.
        metadata: What its config says of its training: model, hook, data.
        dtype: Of its weights.
    """

    source: Source
    repo: str | None
    sha256: dict[str, str]
    license: str | None
    metadata: dict[str, Any]
    dtype: str

    def load(self) -> SAE[Any]:
        """Load it, in its inference form, to the CPU.

        Returns:
            The SAE.

        Raises:
            UserError: If it cannot be loaded, or is another one by now.
        """
        sae, files = _loaded(self.source)
        if (found := _digests(files)) != self.sha256:
            raise UserError(f"{self.source.name} should be as it was. Found files {found}.")
        return sae


def find_origin(source: Source) -> tuple[Origin, SAE[Any]]:
    """Load an SAE, and note what was loaded.

    Args:
        source: Where from.

    Returns:
        What it is, and the SAE in its inference form, on the CPU.

    Raises:
        UserError: If it cannot be loaded.
    """
    sae, files = _loaded(source)
    repo, license = None, _license_of_folder(source.folder) if source.folder else None
    if source.folder is None:
        repo, _ = get_repo_id_and_folder_name(source.release or "", source.sae_id or "")
        commit = next(filter(None, map(commit_of, files)), None)
        source, license = replace(source, revision=commit), _license_on_hub(repo, commit)
    metadata = dict(sae.cfg.metadata.to_dict())
    return Origin(source, repo, _digests(files), license, metadata, sae.cfg.dtype), sae


def allows_derivatives(license: str | None) -> bool:
    """Whether a licence lets one publish what is made of an SAE: of Creative Commons, no ND."""
    return _NO_DERIVATIVES.search(license or "") is None


def _loaded(source: Source) -> tuple[SAE[Any], list[Path]]:
    with downloads(None) as files:
        # Norms are not folded: what they are belongs to how it is trained on.
        sae = inference_form(source.load("cpu"), fold=False)
    if source.folder is not None:
        files = [path for path in map(source.folder.joinpath, _FILES) if path.is_file()]
    return sae, files


def _digests(files: Iterable[Path]) -> dict[str, str]:
    found = {}
    for path in files:
        with path.open("rb") as file:
            found[path.name] = sha_fileobj(file).hex()
    return found


def _license_of_folder(folder: Path) -> str | None:
    """What training recorded, or else the card of the repository that a folder lies in says."""
    path = folder / _RECORD
    release = read_object(path).get("release") if path.is_file() else None
    license = release.get("license") if isinstance(release, dict) else None
    if isinstance(license, str):
        return license
    places = (folder.resolve(), *folder.resolve().parents)
    cards = (place / _README for place in places if (place / _README).is_file())
    nearest = next(cards, None)
    return _license_of_card(nearest) if nearest else None


def _license_on_hub(repo: str, commit: str | None) -> str | None:
    card = file_on_hub(repo, _README, commit)
    return _license_of_card(card) if card else None


def file_on_hub(repo: str, path: str, commit: str | None) -> Path | None:
    """A file of a repository on the Hub; `None` where there is none, or no network."""
    try:
        return Path(hf_hub_download(repo, path, revision=commit))
    except Exception:  # the Hub and the network raise many kinds
        return None


def _license_of_card(path: Path) -> str | None:
    try:
        card = ModelCard.load(path)
        license, name = card.data.license, card.data.license_name
    except Exception:  # no metadata, or none that can be read: it is told that none is known
        return None
    return str(name or license) if license else None
