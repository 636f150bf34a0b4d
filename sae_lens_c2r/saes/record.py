"""The record of an SAE: which it is, how it was trained, and all that was measured of it.

Training writes it beside the weights, as `training.json`. Evaluations, repositories on the Hub
and their cards have it, too, each as far as it is known there. Every key may be missing; a key
that is not here is refused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, ValidationError

from sae_lens_c2r._support.errors import UserError, first_sentence
from sae_lens_c2r._support.files import read_object
from sae_lens_c2r.saes.sae_ref import RECORD as RECORD
from sae_lens_c2r.saes.sae_ref import SAERef

FORMAT: Literal[2] = 2  # of `training.json`, `evaluation.json` and `sae-lens-c2r.json`
# The evaluations that are not SAEBench's.
SAE_LENS = "sae_lens"  # SAELens's own `run_evals`
WEIGHTS = "weights"  # what needs no data
_STRICT = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")
Document = TypeVar("Document", bound=BaseModel)
Number = StrictInt | StrictFloat
Count = Annotated[int, Field(ge=0, lt=2**63)]


class Identity(BaseModel):
    """Which SAE it is, and what it encodes."""

    model_config = _STRICT

    sae_id: str | None = None  # in its release
    name: str | None = None  # by which an evaluation loaded it
    weights_sha256: str | None = None  # of its tensors, in the form of inference
    config_sha256: str | None = None  # of what else decides what it computes, and of what
    file_sha256: str | None = None  # of the file that was published
    architecture: str | None = None  # SAELens's name of its form, and of what it was trained as
    trained_as: str | None = None
    d_in: Count | None = None
    d_sae: Count | None = None
    dtype: str | None = None
    options: dict[str, Any] = {}  # that it was trained with
    model: str | None = None  # on the Hub
    model_name: str | None = None  # what SAELens loads the model by, where that is another
    model_class: str | None = None
    hook_name: str | None = None
    dataset: str | None = None
    context_size: Count | None = None


class Training(BaseModel):
    """How it was trained: from what, with which settings, for how long and on which machine."""

    model_config = _STRICT

    release: str | None = None
    description: str | None = None  # of the release, as its licence and repository
    license: str | None = None
    repo_id: str | None = None
    source: dict[str, Any] = {}  # of activations, as the release says
    started_from: SAERef | None = None  # if not at random
    settings: dict[str, Any] | None = None  # all that decide what is trained
    # The SAEs that were trained beside it, and it; or how many they were.
    trained_together: list[str] | Count = []
    # With several processes to a batch, weights differ by rounding. The largest number, if a
    # run was continued with another.
    processes_per_batch: int = 1
    steps: Count | None = None
    samples: Count | None = None  # tokens in all
    seconds: StrictFloat | None = None  # of the SAEs that were trained together
    samples_per_second: float | None = None
    effective_coefficients: dict[str, StrictFloat] = {}  # of the last step, by penalty
    finished: str | None = None  # in UTC
    matmul_precision: str | None = None  # torch's name of that of products of float32 matrices
    # The model and the text, of those that were not the Hub's; `None` where nobody noted it.
    from_disk: list[str] | None = None
    device: str | None = None
    python: str | None = None
    versions: dict[str, str] = {}
    git_revision: str | None = None  # of the checkout that it ran from, if it was one


class Evaluation(BaseModel, extra="forbid", frozen=True, allow_inf_nan=False):
    """One evaluation of one SAE."""

    model: str | None = None  # `None` for an evaluation of the weights alone
    text: str | None = None  # that SAELens's reads; `None` for what the SAE was trained on
    settings: dict[str, Any] = {}  # all of them
    reading: dict[str, Any] = {}  # how the text was read, where it was SAELens's evaluation
    inputs: dict[str, str] = {}  # the hashes of the files and folders that it reads, by name
    device: str | None = None
    versions: dict[str, str] = {}  # of the packages that computed it
    seconds: float | None = None
    metrics: dict[str, Number]  # the finite numbers, by their keys in METRICS or their own
    missing: list[str] = []  # the keys of the others


class SAERecord(Training, Identity):
    """All that is known of one SAE."""

    format: Literal[2] = FORMAT
    evaluations: dict[str, Evaluation] = {}  # by their names

    @property
    def kind(self) -> str:
        """The architecture that it was trained as, as far as that is known."""
        return self.trained_as or self.architecture or ""

    @property
    def n_together(self) -> int:
        """How many SAEs were trained together."""
        of = self.trained_together
        return of if isinstance(of, int) else len(of)

    def metrics_of(self, evaluation: str) -> dict[str, float]:
        """Return the numbers of an evaluation; none if there was none."""
        return self.evaluations[evaluation].metrics if evaluation in self.evaluations else {}

    def with_config(self, config: Mapping[str, Any]) -> "SAERecord":
        """The record with what an SAE's config says."""
        metadata = config.get("metadata") or {}
        details = metadata.get("training_architecture_details") or {}
        rescaled = {of: metadata.get(f"{of}_effective_coefficient") for of in ("c2r", "ort")}
        known: dict[str, Any] = {
            **{key: config.get(key) for key in ("architecture", "d_in", "d_sae", "dtype")},
            "trained_as": metadata.get("training_architecture"),
            # The fields that only training has, and k, which some inference forms have, too.
            "options": _given({"k": config.get("k"), **details}),
            **{key: metadata.get(key) for key in ("model_name", "hook_name")},
            "model_class": metadata.get("model_class_name"),
            "dataset": metadata.get("dataset_path"),
            "context_size": self.source.get("context_size") or metadata.get("context_size"),
            "effective_coefficients": _given(rescaled),
        }
        return self.model_copy(update=_given(known))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def read_record(folder: Path) -> SAERecord:
    """The record in an SAE's folder; an empty one if there is none."""
    path = folder / RECORD
    return read_document(path, SAERecord, of="train") if path.is_file() else SAERecord()


def read_document(path: Path, kind: type[Document], *, of: str) -> Document:
    """A file of records that a command has written."""
    return parsed(read_object(path), kind, path, of=of)


def parsed(content: Any, kind: type[Document], name: Path, *, of: str) -> Document:
    """The content of such a file."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        should = f"be written by `sae-lens-c2r {of}`"
        raise UserError(name, should, more=first_sentence(error)) from None


def as_document(content: BaseModel) -> dict[str, Any]:
    """The JSON of a file of records, without what is not known."""
    return {"format": FORMAT, **content.model_dump(mode="json", exclude_unset=True)}
