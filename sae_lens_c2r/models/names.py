"""The names of a language model: on the Hub, on the disk, and in TransformerLens."""

import re
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from sae_lens_c2r.models.offline import MODELS, model_folder

_ID = re.compile(r"\w[\w.-]*/[\w.-]+")
# As TransformerLens has them, without the owner that they have on the Hub by now.
_OWNERS = {"gpt2": "openai-community", "distilgpt2": "distilbert"}


@dataclass(frozen=True)
class ModelName:
    """A model by the name that somebody gave it."""

    given: str

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of a model, or of an adapter of one."""
        of_one = ("config.json", "adapter_config.json")
        return any(Path(self.given, each).is_file() for each in of_one)

    @property
    def in_transformer_lens(self) -> str | None:
        """TransformerLens's first name of the model; `None` if it has no such model."""
        from transformer_lens.loading_from_pretrained import get_official_model_name

        with suppress(ValueError):
            return get_official_model_name(self.given)
        return None

    @property
    def hub_id(self) -> str | None:
        """Its id on the Hub, which TransformerLens knows of most of its own names."""
        if "/" in self.given:  # an id, or a folder, which may be of a model that we know
            is_id = _ID.fullmatch(self.given) and not self.is_folder
            return self.given if is_id else self._packaged
        official = self.in_transformer_lens or ""
        owner = _OWNERS.get(official.partition("-")[0])
        return f"{owner}/{official}" if owner else official if "/" in official else None

    def is_of(self, *others: str) -> bool:
        """Whether a model of another name is the same."""
        own, theirs = self._all(), (ModelName(each)._all() for each in others)
        return any(not own.isdisjoint(names) for names in theirs)

    def place(self, revision: object = None) -> str:
        """Where it is loaded from: a package's folder, if that has the revision."""
        model = None if revision else MODELS.get(self.given)
        return str(model_folder(model)) if model and find_spec(model.package) else self.given

    @property
    def _packaged(self) -> str | None:
        """The id of the model whose packaged weights a folder holds, on whatever machine."""
        parts = Path(self.given).parts
        for model in MODELS.values():
            own = Path(model.package, model.weights).parent.parts
            if parts[-len(own) :] == own or parts[-1:] == (model.sha256,):
                return model.hub_id
        return None

    def _all(self) -> set[str]:
        names = (self.given, self.in_transformer_lens, self.hub_id)
        return {each.lower() for each in names if each}
