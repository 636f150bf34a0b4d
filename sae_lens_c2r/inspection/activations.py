"""A language model's activations on a text: where an SAE's config says that it takes them."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from pydantic import BaseModel, ValidationError
from sae_lens.load_model import load_model
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.util import get_special_token_ids

from sae_lens_c2r._support.errors import (
    UserError,
    first_sentence,
    is_of_network,
    needing_the_hub,
    shortened,
)
from sae_lens_c2r._support.libraries import no_false_alarms
from sae_lens_c2r.inspection.contexts import AnySAE, TextActivations
from sae_lens_c2r.offline.corpus import OFFLINE_DATASETS, documents_of, in_rows
from sae_lens_c2r.offline.models import MINILM, where_model_is
from sae_lens_c2r.releases.language_models import beside_no_folder_of

_ROWS_PER_BATCH = 32
_MODEL = ("model_class_name", "model_name", "model_from_pretrained_kwargs")
_PLACE = ("hook_name", "context_size", "prepend_bos")  # that SAELens has to know
_OPTIONS = ("hook_head_index", "seqpos_slice", "exclude_special_tokens")
_JOINED = ("sequence_separator_token", "disable_concat_sequences")  # not read by `from_sae`
# What SAELens takes in their place.
_IF_MISSING = {"sequence_separator_token": "bos", "disable_concat_sequences": False}
_IF_EMPTY: dict[str, Any] = {
    **{"model_class_name": "HookedTransformer", "model_from_pretrained_kwargs": {}},
    **{"seqpos_slice": [None], "exclude_special_tokens": False},
}
_COLUMN = "text"  # of a dataset, unless it has rows of tokens
_DATASET = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_ENDINGS = (".txt", ".jsonl", ".json", ".md")  # which nobody gives a dataset


@dataclass
class ActivationSource:
    """Runs models over one text, each once for all SAEs that ask for the same activations."""

    text: Dataset | str  # or its name: a file, one of the Hub's, or the offline one
    _: KW_ONLY
    n_tokens: int  # at most, special ones among them
    device: str
    model: str | None = None  # in place of the model that an SAE's config names
    named: str = "a dataset"  # what a dataset is called where it is shown
    _models: dict[str, Any] = field(default_factory=dict, init=False)
    _read: dict[str, TextActivations] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Read the text, if it is one of this machine's."""
        if isinstance(self.text, str):
            self.named, self.text = self.text, read_text(self.text)
        if self.text in OFFLINE_DATASETS:
            self.text = Dataset.from_dict({_COLUMN: list(documents_of(self.text))})

    def activations(self, sae: AnySAE, name: str) -> TextActivations:
        """The activations that an SAE encodes; a UserError with its name if there are none."""
        key = _key(sae, *_MODEL, *_PLACE, *_OPTIONS, *_JOINED) + str(sae.cfg.d_in)
        hook_name = sae.cfg.metadata.hook_name
        try:
            if key not in self._read:
                self._read = {key: self._run(sae)}  # one at a time: they may be large
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        except KeyError as error:
            raise UserError(
                f"{name}: `model` should have the hook {hook_name}. There is no {error}."
            ) from error
        except Exception as error:  # the Hub, transformers and torch raise many kinds
            raise UserError(
                f"{name}: `model` should give activations of width {sae.cfg.d_in} at "
                f"{hook_name}, on the text. {first_sentence(error)}"
            ) from error
        return self._read[key]

    def model_of(self, sae: AnySAE) -> Any:
        """The model of an SAE, in SAELens's wrapper."""
        metadata, name = sae.cfg.metadata, self._name_of_model(sae)
        check_reconstructs(sae)
        known = {**metadata.to_dict(), "model_name": name}
        for key in ("model_name", *_PLACE):
            if known.get(key) is None:
                raise UserError(
                    f"`metadata.{key}` should be in the config, or `model` be given. SAEs "
                    "of known features have none, and read no text."
                )
        key = _key(sae, *_MODEL)
        if key not in self._models:
            self._models.clear()  # one at a time, as of what they read
            with needing_the_hub(f"The model {name}"), beside_no_folder_of(name):
                self._models[key] = load_model(
                    metadata.model_class_name or "HookedTransformer",
                    where_model_is(name),
                    device=self.device,
                    model_from_pretrained_kwargs=metadata.model_from_pretrained_kwargs or {},
                )
        return self._models[key]

    @no_false_alarms()
    def store_of(self, sae: AnySAE, **options: Any) -> ActivationsStore:
        """SAELens's store of what an SAE encodes on the text, with options of its own."""
        model, text = self.model_of(sae), self.text
        is_minilm = self._name_of_model(sae) == MINILM.hub_id
        if is_minilm and isinstance(text, Dataset) and _COLUMN in text.column_names:
            # It reads rows of its own, between special tokens.
            text = in_rows(tuple(text[_COLUMN]), where_model_is(MINILM.hub_id))
            if not len(text):
                raise _too_short(MINILM.context_size - 2)
        metadata = sae.cfg.metadata
        options |= {key: metadata[key] for key in _JOINED if key in metadata}
        options |= {"streaming": isinstance(text, str), "device": self.device}
        with _reading(self.named):
            return ActivationsStore.from_sae(model, sae, text, **options)

    @no_false_alarms()
    @torch.no_grad()
    def _run(self, sae: AnySAE) -> TextActivations:
        store = self.store_of(
            sae, store_batch_size_prompts=_ROWS_PER_BATCH, total_tokens=self.n_tokens
        )
        n_rows = -(-self.n_tokens // store.context_size)
        with _reading(self.named):
            rows = list(islice(store.iterable_sequences, n_rows))
        if not rows:
            raise _too_short(store.context_size)
        tokenizer: Any = store.model.tokenizer
        excluded = sae.cfg.metadata.exclude_special_tokens
        special = get_special_token_ids(tokenizer) if excluded is True else excluded or []
        tokens = torch.stack(rows)
        kept = ~torch.isin(tokens.cpu(), torch.tensor(special, dtype=torch.long))
        kept.view(-1)[self.n_tokens :] = False
        kept = kept[:, slice(*store.seqpos_slice)]
        if not kept.any():
            raise UserError(
                "`text` should fill a row of the model's context with tokens that the SAE was "
                f"trained on. Found none among {self.n_tokens:,}."
            )
        batches = zip(tokens.split(_ROWS_PER_BATCH), kept.split(_ROWS_PER_BATCH), strict=True)
        return TextActivations(
            tokens[:, slice(*store.seqpos_slice)].cpu(),
            torch.cat([store.get_activations(each).cpu()[of] for each, of in batches]).float(),
            kept.nonzero(),
            tokenizer=tokenizer,
            text=self.named,
            model=self._name_of_model(sae),
        )

    def _name_of_model(self, sae: AnySAE) -> Any:
        return self.model or sae.cfg.metadata.model_name


def check_reconstructs(sae: AnySAE) -> None:
    """Raise for what encodes one activation and predicts another, or needs whole texts."""
    architecture = sae.cfg.architecture()
    if architecture == "temporal" or architecture.endswith("transcoder"):
        raise UserError(
            "An SAE should reconstruct, token by token, what it encodes to be run on text. "
            f"A {architecture} does not."
        )


def _key(sae: AnySAE, *names: str) -> str:
    """The values of some names in an SAE's config, to tell one such SAE from another."""
    said = {**_IF_MISSING, **sae.cfg.metadata.to_dict()}
    values = [said.get(name) or _IF_EMPTY.get(name, said.get(name)) for name in names]
    return json.dumps(values, default=str, sort_keys=True)


def _too_short(n_tokens: int) -> UserError:
    return UserError(
        f"`text` should fill a row of the model's context, {n_tokens:,} tokens. Found fewer."
    )


class _Document(BaseModel):
    text: str


def _text_of_line(line: str, number: int, path: Path) -> str:
    try:
        return _Document.model_validate_json(line).text
    except ValidationError:
        raise UserError(
            '`text` should have lines like {"text": "words"}. Found in line '
            f"{number} of {path}: {shortened(line, 80)}"
        ) from None


def read_text(source: str) -> Dataset | str:
    """The documents of a file, in `.jsonl` those under `text`; a dataset's name as it is."""
    path = Path(source)
    if not source.strip():
        raise UserError("`text` should be a file, or a dataset on the Hub. Found nothing.")
    if not path.is_file():
        may_be_dataset = _DATASET.fullmatch(source) and path.suffix not in _ENDINGS
        if not path.is_dir() and (path.exists() or not may_be_dataset):
            raise UserError(
                "`text` should be a file that can be read twice, or a dataset on the Hub. "
                f"Found {path}."
            )
        return source
    if path.suffix == ".json":
        raise UserError(f"`text` should be plain text, or end in .jsonl. Found {path}.")
    try:
        texts = [path.read_text(encoding="utf-8")]
    except ValueError as error:
        raise UserError(f"`text` should be in UTF-8. {path}: {error}") from None
    if path.suffix == ".jsonl":
        lines = enumerate(texts[0].split("\n"), start=1)
        texts = [_text_of_line(line, number, path) for number, line in lines if line.strip()]
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UserError(f"`text` should not be empty. Found {path}.")
    return Dataset.from_dict({_COLUMN: texts})


@contextmanager
def _reading(named: str) -> Iterator[None]:
    """Name the text where it cannot be read."""
    with needing_the_hub(f"The text {named}"):
        try:
            yield
        except Exception as error:  # datasets, pyarrow and SAELens raise many kinds
            if is_of_network(error):
                raise
            raise UserError(
                f"`text` should be text that can be read. {named}: {first_sentence(error)}"
            ) from error
