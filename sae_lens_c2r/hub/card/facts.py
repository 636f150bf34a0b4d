"""What a card may say of SAEs: what their files, their training and evaluations have recorded.

A repository keeps it as `sae-lens-c2r.json`, so that later uploads can write a card of all its
SAEs. Nothing here is typed in by anybody.
"""

import json
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.reading import first_problem
from sae_lens_c2r.hub.names import FACTS, check_id
from sae_lens_c2r.saes.sae_ref import SAERef

FORMAT = 1
Count = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False, strict=True)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Evaluation(_Strict):
    """One evaluation of one SAE, as `evaluation.json` has it.

    Args:
        model: The language model; `None` for an evaluation of the weights alone.
        text: What SAELens's own evaluation read; `None` for what the SAE was trained on.
        settings: The evaluation's settings.
        device: Where it ran.
        versions: Versions of the packages that computed it.
        metrics: The numbers.
    """

    model: str | None = None
    text: str | None = None
    settings: dict[str, Any] = {}
    device: str | None = None
    versions: dict[str, str] = {}
    metrics: dict[str, Number]


class Training(_Strict):
    """What was recorded of a training.

    Args:
        model: The language model's name on the Hub or TransformerLens's; `None` for known
            features.
        model_name: What SAELens loads it by, where that is another name.
        model_class: SAELens's name of the class that loads it.
        hook_name: Where its activations were taken.
        dataset: The text.
        context_size: Tokens in a row.
        samples: Tokens in all, or samples of known features.
        steps: Training steps.
        seconds: How long it took, for all SAEs that were trained together.
        together: How many these were.
        device: Where it ran.
        versions: Versions of the packages.
        effective_coefficients: What `c2r_coefficient` and `ort_coefficient` came to at the
            last step, by `c2r` and `ort`.
        started_from: The SAE that it started from, if it did not begin at random.
    """

    model: str | None = None
    model_name: str | None = None
    model_class: str | None = None
    hook_name: str | None = None
    dataset: str | None = None
    context_size: Count | None = None
    samples: Count | None = None
    steps: Count | None = None
    seconds: Number | None = None
    together: Count | None = None
    device: str | None = None
    versions: dict[str, str] = {}
    effective_coefficients: dict[str, Number] = {}
    started_from: SAERef | None = None


class SAEFacts(_Strict):
    """What is known of one SAE.

    Args:
        weights_sha256: Of its weights' file.
        architecture: SAELens's name of its form.
        trained_as: SAELens's name of what it was trained as.
        d_in: Dimension of its inputs.
        d_sae: Its latents.
        dtype: Of its weights.
        options: Fields that it was trained with.
        training: What was recorded of that.
        evaluations: Its evaluations by name.
    """

    weights_sha256: str
    architecture: str
    trained_as: str | None = None
    d_in: Count
    d_sae: Count
    dtype: str | None = None
    options: dict[str, Any] = {}
    training: Training = Training()
    evaluations: dict[str, Evaluation] = {}

    def is_the_same_as(self, other: "SAEFacts") -> bool:
        """Whether what was measured of one SAE is true of another, used alike."""
        of = ("weights_sha256", "architecture", "options")
        return all(getattr(self, name) == getattr(other, name) for name in of)


def _in_order(saes: dict[str, SAEFacts]) -> dict[str, SAEFacts]:
    """The SAEs as the file has them, and so every card."""
    return dict(sorted(saes.items()))


class Facts(_Strict):
    """What is known of the SAEs of a repository.

    Args:
        format: Of this file.
        repo_id: The repository.
        description: What they are for.
        license: Of their weights, as the Hub spells it.
        base_models: The models that they encode, as the Hub calls them.
        datasets: The texts that the Hub has.
        saes: The SAEs by their ids.
    """

    format: int = FORMAT
    repo_id: str
    description: str | None = None
    license: str | None = None
    base_models: list[str] = []
    datasets: list[str] = []
    saes: Annotated[dict[str, SAEFacts], Field(min_length=1), AfterValidator(_in_order)]

    def joined(self, later: "Facts") -> "Facts":
        """What is known of all SAEs; a later upload counts where both have one."""
        saes = {**self.saes, **later.saes}
        for sae_id, before in self.saes.items():
            now = saes[sae_id]
            if now.is_the_same_as(before):  # what was measured still holds
                evaluations = {**before.evaluations, **now.evaluations}
                saes[sae_id] = now.model_copy(update={"evaluations": evaluations})
        return Facts(
            repo_id=later.repo_id,
            description=later.description or self.description,
            license=later.license or self.license,
            base_models=sorted({*self.base_models, *later.base_models}),
            datasets=sorted({*self.datasets, *later.datasets}),
            saes=saes,
        )

    def to_json(self) -> str:
        """The file's content."""
        said = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps({"format": self.format, **said}, indent=1, sort_keys=True) + "\n"


def read_facts(content: str | bytes) -> Facts:
    """What an earlier upload has left, unless it is no such file, or of a later format."""
    try:
        said = from_json(content)
    except ValueError as error:
        raise UserError(f"{FACTS} should be JSON. {error}") from None
    if isinstance(said, dict) and said.get("format", FORMAT) != FORMAT:
        raise UserError(f"{FACTS} should be of format {FORMAT}. Found {said['format']}.")
    try:
        facts = Facts.model_validate(said)
    except ValidationError as error:
        raise UserError(
            f"{FACTS} should be written by `sae-lens-c2r upload`. {first_problem(error)}"
        ) from None
    for sae_id in facts.saes:
        check_id(sae_id)
    return facts
