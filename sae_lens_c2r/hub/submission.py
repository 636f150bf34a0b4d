"""What somebody wants to publish."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sae_lens import SAE, TrainingSAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.names import check_base_model, check_license
from sae_lens_c2r.releases.model import Release

SAEs = Sequence[Path] | Mapping[str, SAE[Any] | TrainingSAE[Any]]


@dataclass(frozen=True)
class Submission:
    """SAEs to be published, and what is said of them beside their own files.

    Args:
        saes: Folders, each of one SAE or of many, or SAEs in memory by their ids.
        release: The release that they are of; by itself what their `training.json` names.
        evaluation: Their `evaluation.json`; by itself those beside the folders.
        license: Of their weights, as the Hub spells it; by itself the release's.
        base_model: The model that they encode, as the Hub calls it; by itself the release's.

    Raises:
        UserError: If there is none, or the licence or the model is not named as on the Hub.
    """

    saes: SAEs
    release: Release | None = None
    evaluation: Path | None = None
    license: str | None = None
    base_model: str | None = None

    def __post_init__(self) -> None:
        if not self.saes:
            raise UserError("`saes` should be folders, or SAEs by their ids. Found none.")
        in_memory = isinstance(self.saes, Mapping)
        folders = [] if in_memory or isinstance(self.saes, str | Path) else self.saes
        if not in_memory and not (folders and all(isinstance(each, Path) for each in folders)):
            raise UserError(f"`saes` should be a list of `Path`. Found {self.saes!r}.")
        check_license(self.license)
        check_base_model(self.base_model)

    @classmethod
    def of(cls, saes: "Submission | SAEs") -> "Submission":
        """A submission as it is, or one of SAEs of which nothing more is said."""
        return saes if isinstance(saes, Submission) else cls(saes)
