"""Running language models over a text, where an SAE's config says that it takes its inputs."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from datasets import Dataset
from sae_lens import SAE, TrainingSAE
from sae_lens.load_model import load_model
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.util import get_special_token_ids
from torch import Tensor

from sae_lens_c2r._support.errors import UserError, first_sentence
from sae_lens_c2r._support.false_alarms import no_false_alarms
from sae_lens_c2r._support.network import needing_the_hub
from sae_lens_c2r.inspection.activations import TextActivations
from sae_lens_c2r.inspection.text import COLUMN, read_text, reading, too_short
from sae_lens_c2r.offline import corpus
from sae_lens_c2r.offline.minilm import CONTEXT_SIZE
from sae_lens_c2r.offline.source import (
    OFFLINE_DATASET,
    OFFLINE_MODEL,
    offline_source,
    where_model_is,
)

_ROWS_PER_BATCH = 32
_MODEL = ("model_class_name", "model_name", "model_from_pretrained_kwargs")
_PLACE = ("hook_name", "hook_head_index")
_ROWS = ("context_size", "prepend_bos", "seqpos_slice", "exclude_special_tokens")


def reader_of(text: str, *, model: str | None, n_tokens: int, device: str) -> "TextReader":
    """What reads a text of a command line: a file, one of the Hub's, or the offline one."""
    options: dict[str, Any] = {"n_tokens": n_tokens, "device": device, "named": text}
    if text != OFFLINE_DATASET:
        return TextReader(read_text(text), model=model, **options)
    if model not in (None, OFFLINE_MODEL):
        raise UserError(
            f"`text` should not be {OFFLINE_DATASET} for {model}: it is cut into the tokens "
            f"of {OFFLINE_MODEL}."
        )
    _, dataset = offline_source()
    return TextReader(dataset, model=OFFLINE_MODEL, **options)


class TextReader:
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
        self.named = named or (text if isinstance(text, str) else "a dataset")
        self._models: dict[str, Any] = {}
        self._read: dict[str, TextActivations] = {}
        self._rows: Dataset | None = None

    def activations(self, sae: SAE[Any] | TrainingSAE[Any], name: str) -> TextActivations:
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

    def name_of_model(self, sae: SAE[Any] | TrainingSAE[Any]) -> str:
        """The name of an SAE's model; a UserError if there is none."""
        name = self._model or sae.cfg.metadata.model_name
        if not isinstance(name, str) or not name:
            raise UserError(
                "`model` should be given: the SAE's config has no `metadata.model_name`."
            )
        return name

    def model_of(self, sae: SAE[Any] | TrainingSAE[Any]) -> Any:
        """The model of an SAE, in SAELens's wrapper."""
        _check_place(sae)
        key = _key(sae, *_MODEL)
        if key not in self._models:
            about, name = sae.cfg.metadata, self.name_of_model(sae)
            with needing_the_hub(f"The model {name}"):
                self._models[key] = load_model(
                    about.model_class_name or "HookedTransformer",
                    where_model_is(name),
                    device=self._device,
                    model_from_pretrained_kwargs=about.model_from_pretrained_kwargs or {},
                )
        return self._models[key]

    @no_false_alarms()
    def store_of(self, sae: SAE[Any] | TrainingSAE[Any], **options: Any) -> ActivationsStore:
        """SAELens's store of what an SAE encodes on the text, with options of its own."""
        model = self.model_of(sae)
        text = self._text_for(sae, model)
        with needing_the_hub(f"The text {self.named}"), reading(self.named):
            return ActivationsStore.from_sae(
                model,
                sae,
                text,
                streaming=isinstance(text, str),
                device=self._device,
                **options,
            )

    def _text_for(self, sae: SAE[Any] | TrainingSAE[Any], model: Any) -> Dataset | str:
        """The text as the model reads it: MiniLM in rows of its own, between special tokens."""
        text = self._text
        named = self.name_of_model(sae)
        if named != OFFLINE_MODEL or isinstance(text, str) or COLUMN not in text.column_names:
            return text
        if self._rows is None:
            rows = corpus.token_rows(text[COLUMN][:], model.tokenizer)
            if not len(rows):
                raise too_short(CONTEXT_SIZE - 2, text, model.tokenizer)
            self._rows = Dataset.from_dict({"tokens": rows.tolist()})
        return self._rows

    @no_false_alarms()
    @torch.no_grad()
    def _run(self, sae: SAE[Any] | TrainingSAE[Any]) -> TextActivations:
        model = self.model_of(sae)
        store = self.store_of(
            sae, store_batch_size_prompts=_ROWS_PER_BATCH, total_tokens=self._n_tokens
        )
        left_out = _left_out(sae.cfg.metadata.exclude_special_tokens, model)
        rows, activations, kept = [], [], []
        place = slice(*store.seqpos_slice)
        with needing_the_hub(f"The text {self.named}"):
            for tokens, is_wanted in self._rows_of_tokens(store):
                acts = store.get_activations(tokens).cpu()
                rows.append(tokens[:, place].cpu())
                kept.append(~torch.isin(rows[-1], left_out) & is_wanted[:, place])
                activations.append(acts[kept[-1]])
        if not rows:
            raise too_short(store.context_size, self._text, model.tokenizer)
        if not any(map(len, activations)):
            raise UserError(
                "`text` should fill a row of the model's context with tokens that the SAE was "
                f"trained on. Found none among {self._n_tokens:,}."
            )
        return TextActivations(
            torch.cat(rows), torch.cat(activations).float(), torch.cat(kept).nonzero()
        )

    def _rows_of_tokens(self, store: ActivationsStore) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows until there are tokens enough, or the text ends, and which tokens are wanted."""
        left = self._n_tokens
        while left > 0:
            most = min(_ROWS_PER_BATCH, -(-left // store.context_size))
            with reading(self.named):
                rows = list(islice(store.iterable_sequences, most))
            if not rows:
                return
            tokens = torch.stack(rows)
            yield tokens, (torch.arange(tokens.numel()) < left).view(tokens.shape)
            left -= tokens.numel()


def _check_place(sae: SAE[Any] | TrainingSAE[Any]) -> None:
    """Raise, before a model is loaded, unless an SAE says where in it, and on what rows."""
    about = sae.cfg.metadata
    if not about.hook_name:
        raise UserError(
            "the SAE's config should have a hook as `metadata.hook_name`. There is none, as in "
            "SAEs of known features, which read no text."
        )
    for name in ("context_size", "prepend_bos"):
        if about.get(name) is None:
            raise UserError(
                f"`model` should read rows that are known: the SAE's config has no "
                f"`metadata.{name}`."
            )


def _key(sae: SAE[Any] | TrainingSAE[Any], *names: str) -> str:
    """What an SAE's config says under some names, to tell one such SAE from another."""
    about = sae.cfg.metadata.to_dict()
    return json.dumps([about.get(name) for name in names], default=str, sort_keys=True)


def _left_out(which: bool | list[int] | None, model: Any) -> Tensor:
    """The ids of special tokens that an SAE was not trained on, as SAELens's config says."""
    ids = get_special_token_ids(model.tokenizer) if which is True else which or []
    return torch.tensor(list(ids), dtype=torch.long)
