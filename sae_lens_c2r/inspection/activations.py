"""A language model's activations on a text: where an SAE's config says that it takes them."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sae_lens.load_model import load_model
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.util import get_special_token_ids
from torch import Tensor

from sae_lens_c2r._support.errors import (
    UserError,
    first_sentence,
    is_of_network,
    needing_the_hub,
    shortened,
)
from sae_lens_c2r._support.libraries import no_false_alarms
from sae_lens_c2r.inspection.contexts import AnySAE, TextActivations
from sae_lens_c2r.offline import corpus
from sae_lens_c2r.offline.corpus import OFFLINE_DATASET, offline_source
from sae_lens_c2r.offline.minilm import CONTEXT_SIZE, OFFLINE_MODEL, where_model_is

_ROWS_PER_BATCH = 32
_MODEL = ("model_class_name", "model_name", "model_from_pretrained_kwargs")
_PLACE = ("hook_name", "hook_head_index")
_ROWS = ("context_size", "prepend_bos", "seqpos_slice", "exclude_special_tokens")
_COLUMN = "text"  # of a dataset, unless it has rows of tokens
_DATASET = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_ENDINGS = (".txt", ".jsonl", ".json", ".md")  # which nobody gives a dataset


def activation_source(
    text: str, *, model: str | None, n_tokens: int, device: str
) -> "ActivationSource":
    """The source of a text that a command line names: a file, the Hub's or the offline one."""
    options: dict[str, Any] = {"n_tokens": n_tokens, "device": device, "named": text}
    if text != OFFLINE_DATASET:
        return ActivationSource(read_text(text), model=model, **options)
    if model not in (None, OFFLINE_MODEL):
        raise UserError(
            f"`text` should not be {OFFLINE_DATASET} for {model}: it is cut into the tokens "
            f"of {OFFLINE_MODEL}."
        )
    _, dataset = offline_source()
    return ActivationSource(dataset, model=OFFLINE_MODEL, **options)


class ActivationSource:
    """Runs models over one text, each once for all SAEs that ask for the same activations.

    Args:
        text: What SAELens reads the text from: a dataset, or its name on the Hub.
        model: What to load in place of the model that an SAE's config names.
        n_tokens: Tokens at most, special ones among them.
        device: Where the models run.
        named: What the text is called where it is shown.
    """

    def __init__(
        self,
        text: Dataset | str,
        *,
        model: str | None,
        n_tokens: int,
        device: str,
        named: str | None = None,
    ) -> None:
        self._text = text
        self._model = model
        self._n_tokens = n_tokens
        self._device = device
        self._named = named or (text if isinstance(text, str) else "a dataset")
        self._models: dict[str, Any] = {}
        self._read: dict[str, TextActivations] = {}
        self._rows: Dataset | None = None

    def activations(self, sae: AnySAE, name: str) -> TextActivations:
        """The activations that an SAE encodes; a UserError with its name if there are none."""
        widths = (sae.cfg.d_in, sae.cfg.dtype, sae.cfg.normalize_activations)
        key = _key(sae, *_MODEL, *_PLACE, *_ROWS) + json.dumps(widths)
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

    def name_of_model(self, sae: AnySAE) -> str:
        """The name of an SAE's model; a UserError if there is none."""
        name = self._model or sae.cfg.metadata.model_name
        if not isinstance(name, str) or not name:
            raise UserError(
                "`model` should be given: the SAE's config has no `metadata.model_name`."
            )
        return name

    def model_of(self, sae: AnySAE) -> Any:
        """The model of an SAE, in SAELens's wrapper."""
        _check_place(sae)
        key = _key(sae, *_MODEL)
        if key not in self._models:
            metadata, name = sae.cfg.metadata, self.name_of_model(sae)
            with needing_the_hub(f"The model {name}"):
                self._models[key] = load_model(
                    metadata.model_class_name or "HookedTransformer",
                    where_model_is(name),
                    device=self._device,
                    model_from_pretrained_kwargs=metadata.model_from_pretrained_kwargs or {},
                )
        return self._models[key]

    @no_false_alarms()
    def store_of(self, sae: AnySAE, **options: Any) -> ActivationsStore:
        """SAELens's store of what an SAE encodes on the text, with options of its own."""
        model = self.model_of(sae)
        text = self._text_for(sae, model)
        with needing_the_hub(f"The text {self._named}"), _reading(self._named):
            return ActivationsStore.from_sae(
                model,
                sae,
                text,
                streaming=isinstance(text, str),
                device=self._device,
                **options,
            )

    def _text_for(self, sae: AnySAE, model: Any) -> Dataset | str:
        """The text as the model reads it: MiniLM in rows of its own, between special tokens."""
        text = self._text
        is_minilm = self.name_of_model(sae) == OFFLINE_MODEL
        if not is_minilm or isinstance(text, str) or _COLUMN not in text.column_names:
            return text
        if self._rows is None:
            rows = corpus.token_rows(text[_COLUMN][:], model.tokenizer)
            if not len(rows):
                raise self._too_short(CONTEXT_SIZE - 2, model.tokenizer)
            self._rows = Dataset.from_dict({"tokens": rows.tolist()})
        return self._rows

    @no_false_alarms()
    @torch.no_grad()
    def _run(self, sae: AnySAE) -> TextActivations:
        model = self.model_of(sae)
        store = self.store_of(
            sae, store_batch_size_prompts=_ROWS_PER_BATCH, total_tokens=self._n_tokens
        )
        left_out = _left_out(sae.cfg.metadata.exclude_special_tokens, model)
        rows, activations, kept = [], [], []
        place = slice(*store.seqpos_slice)
        with needing_the_hub(f"The text {self._named}"):
            for tokens, is_wanted in self._rows_of_tokens(store):
                acts = store.get_activations(tokens).cpu()
                rows.append(tokens[:, place].cpu())
                kept.append(~torch.isin(rows[-1], left_out) & is_wanted[:, place])
                activations.append(acts[kept[-1]])
        if not rows:
            raise self._too_short(store.context_size, model.tokenizer)
        if not any(map(len, activations)):
            raise UserError(
                "`text` should fill a row of the model's context with tokens that the SAE was "
                f"trained on. Found none among {self._n_tokens:,}."
            )
        return TextActivations(
            torch.cat(rows),
            torch.cat(activations).float(),
            torch.cat(kept).nonzero(),
            tokenizer=model.tokenizer,
            text=self._named,
            model=self.name_of_model(sae),
        )

    def _rows_of_tokens(self, store: ActivationsStore) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows until there are tokens enough, or the text ends, and which tokens are wanted."""
        left = self._n_tokens
        while left > 0:
            most = min(_ROWS_PER_BATCH, -(-left // store.context_size))
            with _reading(self._named):
                rows = list(islice(store.iterable_sequences, most))
            if not rows:
                return
            tokens = torch.stack(rows)
            yield tokens, (torch.arange(tokens.numel()) < left).view(tokens.shape)
            left -= tokens.numel()

    def _too_short(self, n_tokens: int, tokenizer: Any) -> UserError:
        found = ""
        if isinstance(self._text, Dataset) and _COLUMN in self._text.column_names:
            texts = self._text[_COLUMN][:]
            ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
            found = f" Found {sum(map(len, ids)):,}."
        return UserError(
            f"`text` should fill a row of the model's context, {n_tokens:,} tokens.{found}"
        )


def _check_place(sae: AnySAE) -> None:
    """Raise, before a model is loaded, unless an SAE says where in it, and on what rows."""
    metadata = sae.cfg.metadata
    if not metadata.hook_name:
        raise UserError(
            "the SAE's config should have a hook as `metadata.hook_name`. There is none, as in "
            "SAEs of known features, which read no text."
        )
    for name in ("context_size", "prepend_bos"):
        if metadata.get(name) is None:
            raise UserError(
                f"`model` should read rows that are known: the SAE's config has no "
                f"`metadata.{name}`."
            )


def _key(sae: AnySAE, *names: str) -> str:
    """The values of some names in an SAE's config, to tell one such SAE from another."""
    metadata = sae.cfg.metadata.to_dict()
    return json.dumps([metadata.get(name) for name in names], default=str, sort_keys=True)


def _left_out(which: bool | list[int] | None, model: Any) -> Tensor:
    """The ids of special tokens that an SAE was not trained on, as SAELens's config says."""
    ids = get_special_token_ids(model.tokenizer) if which is True else which or []
    return torch.tensor(list(ids), dtype=torch.long)


def read_text(source: str) -> Dataset | str:
    """The documents of a file, in `.jsonl` those under `text`; a dataset's name as it is."""
    path = Path(source)
    if not path.is_file():
        may_be_dataset = _DATASET.fullmatch(source) and path.suffix not in _ENDINGS
        if not path.is_dir() and (path.exists() or not may_be_dataset):
            raise UserError(
                "`text` should be a file that can be read twice, or a dataset on the Hub. "
                f"Found {path}."
            )
        return source
    try:
        content = path.read_text(encoding="utf-8")
        texts = [content]
        if path.suffix == ".jsonl":
            texts = [_text_of(line) for line in content.splitlines() if line.strip()]
    except ValueError as error:
        raise UserError(f"`text` should be a text, in UTF-8. {path}: {error}") from None
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UserError(f"`text` should not be empty. Found {path}.")
    return Dataset.from_dict({_COLUMN: texts})


def _text_of(line: str) -> str:
    """The text of a line of JSON."""
    document = json.loads(line)
    if not isinstance(document, dict) or not isinstance(document.get(_COLUMN), str):
        shown = shortened(line, 40)
        raise ValueError(f'a line should be like {{"{_COLUMN}": "words"}}. Found {shown}')
    return str(document[_COLUMN])


@contextmanager
def _reading(named: str) -> Iterator[None]:
    """Name the text where it cannot be read, for another reason than the network."""
    try:
        yield
    except Exception as error:  # datasets, pyarrow and SAELens raise many kinds
        if is_of_network(error):
            raise
        raise UserError(
            f"`text` should be text that can be read. {named}: {first_sentence(error)}"
        ) from error
