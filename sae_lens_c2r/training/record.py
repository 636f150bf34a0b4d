"""The record that reproduces a training: `training.json`, beside the weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from sae_lens_c2r._support.files import is_there, read_model
from sae_lens_c2r.offline.models import is_model
from sae_lens_c2r.saes.sae_ref import SAERef

RECORD = "training.json"


class _Recorded(BaseModel):
    # Every key may be missing, and others may be there: anybody's file may have that name.
    model_config = ConfigDict(extra="allow", frozen=True)


class RecordedModel(_Recorded):
    """The language model, as of `sae_lens_c2r.releases.model.LanguageModel`."""

    hub_id: str | None = None
    dataset: str | None = None
    context_size: int | None = None


class RecordedFeatures(_Recorded):
    """The known features, as of `sae_lens_c2r.releases.model.SyntheticModel`."""

    config: dict[str, Any] = {}


class RecordedRelease(_Recorded):
    """The release, as of `sae_lens_c2r.releases.model.Release`."""

    description: str | None = None
    license: str | None = None
    repo_id: str | None = None
    language_model: RecordedModel | None = None
    synthetic_model: RecordedFeatures | None = None


class RecordedMeasures(_Recorded):
    """Measurements of an SAE on text that was held out of its training."""

    text: str | None = None  # its name
    n_tokens: int | None = None
    metrics: dict[str, float] = {}  # by their keys joined by dots


def _known(start: Any) -> Any:
    """The keys of a reference that this version knows: a later one may have more."""
    known = SAERef.__dataclass_fields__
    return {key: start[key] for key in start if key in known} if type(start) is dict else start


class TrainingRecord(_Recorded):
    """The training of one SAE."""

    release: RecordedRelease | None = None  # the whole release
    sae_id: str | None = None
    # If it did not begin at random.
    started_from: Annotated[SAERef | None, BeforeValidator(_known)] = None
    settings: dict[str, Any] | None = None  # all that decide what is trained
    trained_together: list[str] = []  # the SAEs that were trained beside it, and it
    # With several processes to a batch, weights differ by rounding. The largest number, if a
    # run was continued with another.
    processes_per_batch: int = 1
    steps: int | None = None
    samples: int | None = None  # tokens in all, or samples of known features
    seconds: float | None = None  # of the SAEs that were trained together
    samples_per_second: float | None = None
    evaluation: dict[str, Any] | None = None  # SAELens's against known features
    held_out: RecordedMeasures | None = None
    finished: str | None = None  # in UTC
    matmul_precision: str | None = None  # torch's name of that of products of float32 matrices
    # The model and the text, of those that were not the Hub's; `None` where nobody noted it.
    from_disk: list[str] | None = None
    device: str | None = None
    python: str | None = None
    versions: dict[str, str] = {}
    git_revision: str | None = None  # of the checkout that it ran from, if it was one

    @property
    def model(self) -> RecordedModel:
        """The language model; an empty one if none was recorded."""
        return (self.release and self.release.language_model) or RecordedModel()

    def names_of_disk(self, metadata: Mapping[str, Any]) -> set[str]:
        """The names of the model and the text of an SAE that are of this machine alone."""
        if self.from_disk is not None:
            return set(self.from_disk)
        model, of_hub = metadata.get("model_name"), self.model.hub_id
        texts = (metadata.get("dataset_path"), self.model.dataset)
        found = {text for text in texts if isinstance(text, str) and is_there(text)}
        return found | ({str(model)} if is_model(model) and model != of_hub else set())

    @property
    def features(self) -> RecordedFeatures | None:
        """The known features; `None` if it was not trained on such."""
        return self.release.synthetic_model if self.release else None


def read_record(folder: Path) -> TrainingRecord | None:
    """The record in an SAE's folder; `None` if it has none, a UserError if it is not ours."""
    path = folder / RECORD
    if not path.is_file():
        return None
    return read_model(path, TrainingRecord, written_by="`sae-lens-c2r train`")
