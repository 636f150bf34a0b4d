"""Under which licence an SAE is, as far as its folder or its repository says."""

import re
from pathlib import Path

from huggingface_hub import ModelCard, hf_hub_download

from sae_lens_c2r._support.reading import read_object

_RECORD, _README = "training.json", "README.md"
_NO_DERIVATIVES = re.compile(r"(?<![a-z])nd(?![a-z])|no-?deriv", re.IGNORECASE)


def allows_derivatives(license: str | None) -> bool:
    """Whether a licence lets one publish what is made of an SAE: of Creative Commons, no ND."""
    return _NO_DERIVATIVES.search(license or "") is None


def license_of_folder(folder: Path) -> str | None:
    """The licence of a folder, by its training, or else by the card of its repository."""
    path = folder / _RECORD
    release = read_object(path).get("release") if path.is_file() else None
    license = release.get("license") if isinstance(release, dict) else None
    if isinstance(license, str):
        return license
    places = (folder.resolve(), *folder.resolve().parents)
    cards = (place / _README for place in places if (place / _README).is_file())
    nearest = next(cards, None)
    return _license_of_card(nearest) if nearest else None


def license_on_hub(repo: str, commit: str | None) -> str | None:
    """The licence that the card of a repository says."""
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
