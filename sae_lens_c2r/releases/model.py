"""The model of a release: the SAEs of one YAML file in `registry/`, and how they are trained.

`docs/releases.md` describes the keys. Nothing here imports SAELens: the fields of its configs
are checked when a plan is made of a release.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from sae_lens_c2r._support.errors import UserError, one_line, shortened
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.text_source import TextSource

NAME_PATTERN = r"[a-z0-9]+([.-][a-z0-9]+)*"
LICENSE_PATTERN = rf"{NAME_PATTERN}\+*"  # as openrail++
README, FACTS, FIGURES = _OF_A_CARD = "README.md", "sae-lens-c2r.json", "figures"
SAE_ID = (  # its pattern, and what it should be: the SAE's folder on the disk and on the Hub
    rf"(?!.{{201}}|(?i:{'|'.join(map(re.escape, _OF_A_CARD))})(?:/|$))"
    r"\w[\w.-]*(?:/\w[\w.-]*)*",
    "folders of letters, digits, `_`, and, after the first, `-` and `.`, at most 200 "
    f"characters, and not begin with {', '.join(_OF_A_CARD)}, which a card needs",
)
REPO_ID = r"(?!.*(?:--|\.\.|\.git$))\b[\w.-]+\b/\b[\w.-]{1,96}\b"
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
_Place = Annotated[Text, AfterValidator(os.path.expanduser)]  # a folder, a file, or a name


def check_ids(sae_ids: Iterable[str]) -> None:
    """Raise unless SAEs may lie in these folders, none in that of another one."""
    sae_ids = list(sae_ids)
    pattern, should = SAE_ID
    for sae_id in sae_ids:
        if not re.fullmatch(pattern, sae_id, re.ASCII):
            raise UserError("sae_id", f"be {should}", repr(shortened(sae_id, 300)))
    # Sorted as paths, what lies in a folder follows it at once.
    for outer, inner in pairwise(sorted(f"{sae_id.lower()}/" for sae_id in sae_ids)):
        if inner.startswith(outer):
            raise UserError(
                f"An SAE should not lie in another SAE's folder. Found {inner[:-1]} and "
                f"{outer[:-1]}."
            )


def _matching(pattern: str, should: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"should {should}")
        return text

    return AfterValidator(check)


_Name = Annotated[
    str,
    _matching(NAME_PATTERN, "be lowercase letters and digits, with `-` or `.` between them"),
]
_License = Annotated[
    str, _matching(LICENSE_PATTERN, "be a licence of the Hub, like mit or apache-2.0")
]
_Repository = Annotated[
    str, _matching(REPO_ID, "be a repository on the Hub, like your-name/my-saes")
]
_Model = Annotated[
    str,
    _matching(
        REPO_ID,
        "be the model on the Hub, like openai-community/gpt2; the name that SAELens loads it "
        "by, like gpt2, goes into `name`",
    ),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class LanguageModel(_Strict):
    """The model whose activations are encoded, and what is read from it."""

    hub_id: _Model | None = None  # where `name` is a folder, it may lack
    name: _Place | None = None  # that SAELens loads it by, where that differs from the Hub's
    revision: Text | None = None  # branch, tag or commit on the Hub
    hook_name: Text  # where the activations are taken
    dataset: _Place  # a file, a folder, on the Hub, or one of ours that needs no network
    split: Text | None = None  # of the dataset; by default `train`, or the only one
    subset: Text | None = None
    column: Text | None = None  # with the words, or the tokens
    context_size: int = Field(gt=1)  # tokens in a row
    training_tokens: int = Field(gt=0)  # in all

    @model_validator(mode="after")
    def _has_a_model(self) -> "LanguageModel":
        name = self.name or ""
        is_folder = re.search(r"[/\\]|^[.~]", name) or ModelName(name).is_folder
        if self.hub_id is None and not is_folder:
            raise ValueError("`hub_id`, or a folder as `name`, should be given")
        return self

    @property
    def model(self) -> str:
        """The name that SAELens loads the model by, which may be a folder."""
        return self.name or self.hub_id or ""

    @property
    def text(self) -> TextSource:
        """The text that is read."""
        return TextSource(self.dataset, self.split, self.subset, self.column)


class Grid(_Strict):
    """SAEs that differ in a few fields."""

    # The folder of each on the Hub. `{field}` stands for a field of the SAE, and `{width}` for
    # `d_sae` in thousands, as in `width_64k`.
    id: Text
    sae: dict[str, Any] = {}  # fields beside the release's, for those SAEs that have them
    # Fields with the values that they take, in all combinations.
    axes: dict[str, Annotated[list[Any], Field(min_length=1)]] = {}


@dataclass(frozen=True)
class SAESpec:
    """One SAE of a release."""

    sae_id: str  # its folder on the Hub
    fields: dict[str, Any]  # of SAELens's training config, with `architecture`, and `seed`
    grid: Grid
    shared: frozenset[str] = frozenset()  # fields that this SAE may lack, as others have them


class Release(_Strict):
    """One YAML file."""

    name: _Name  # of the file, without its ending
    description: Text  # what the SAEs are for, in a sentence or two
    license: _License | None = None  # of their weights, needed to publish them
    repo_id: _Repository | None = None  # where they are published
    # `ready`: trained and measured, to be uploaded.
    status: Literal["planned", "ready", "published"] = "planned"
    language_model: LanguageModel  # what they encode
    runner: dict[str, Any] = {}  # any other field of SAELens's runner config
    sae: dict[str, Any]  # fields of all SAEs that have them
    grids: Annotated[list[Grid], Field(min_length=1)]

    @model_validator(mode="after")
    def _can_be_told_apart(self) -> "Release":
        """Raise unless each SAE has a folder of its own."""
        ids = [spec.sae_id for spec in self.saes()]
        try:
            check_ids(ids)
        except UserError as error:
            problem = str(error).removesuffix(".")
            raise ValueError(f"`grids.id` should give every SAE an id. {problem}") from None
        return self

    def saes(self) -> list[SAESpec]:
        """Every SAE, in the order of the grids."""
        specs = []
        for grid in self.grids:
            shared = frozenset({*self.sae, *grid.sae} - grid.axes.keys())
            for values in product(*grid.axes.values()):
                varied = dict(zip(grid.axes, values, strict=True))
                fields = {**self.sae, **grid.sae, **varied}
                d_sae, width = fields.get("d_sae"), "unknown"
                if isinstance(d_sae, int):  # or what it should be is said when a plan is made
                    width = f"{d_sae // 1024}k" if d_sae % 1024 == 0 else str(d_sae)
                try:
                    sae_id = grid.id.format_map({**fields, "width": width})
                except (AttributeError, LookupError, TypeError, ValueError) as error:
                    raise ValueError(
                        "`grids.id` should name fields of the SAE, in braces. Found "
                        f"`{grid.id}` ({one_line(error)})"
                    ) from None
                specs.append(SAESpec(sae_id, fields, grid, shared))
        return specs
