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

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.inspection.activations import TextActivations
from sae_lens_c2r.inspection.text import read_text
from sae_lens_c2r.offline.source import OFFLINE_DATASET, OFFLINE_MODEL, offline_source

_ROWS_PER_BATCH = 32
_MODEL = ("model_class_name", "model_name", "model_from_pretrained_kwargs")
_PLACE = ("hook_name", "hook_head_index")
_ROWS = ("context_size", "prepend_bos", "seqpos_slice", "exclude_special_tokens")


def reader_of(text: str, *, model: str | None, n_tokens: int, device: str) -> "TextReader":
    """What reads a text of a command line: a file, one of the Hub's, or the offline one."""
    if text != OFFLINE_DATASET:
        return TextReader(read_text(text), model=model, n_tokens=n_tokens, device=device)
    if model not in (None, OFFLINE_MODEL):
        raise UserError(
            f"`text` should not be {OFFLINE_DATASET} for {model}: it is cut into the tokens "
            f"of {OFFLINE_MODEL}."
        )
    folder, dataset = offline_source()
    return TextReader(dataset, model=folder, n_tokens=n_tokens, device=device)


class TextReader:
    """Runs models over one text, each once for all SAEs that ask for the same activations.

    Args:
        text: What SAELens reads the text from: a dataset, or its name on the Hub.
        model: What to load in place of the model that an SAE's config names.
        n_tokens: Tokens at most.
        device: Where the models run.
    """

    def __init__(
        self, text: Dataset | str, *, model: str | None, n_tokens: int, device: str
    ) -> None:
        self._text = text
        self._model = model
        self._n_tokens = n_tokens
        self._device = device
        self._models: dict[str, Any] = {}
        self._read: dict[str, TextActivations] = {}

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
                f"{hook_name}, on the text. {one_line(error)}"
            ) from error
        return self._read[key]

    def model_of(self, sae: SAE[Any] | TrainingSAE[Any]) -> Any:
        """The model of an SAE, in SAELens's wrapper."""
        key = _key(sae, *_MODEL)
        if key not in self._models:
            about = sae.cfg.metadata
            self._models[key] = load_model(
                about.model_class_name or "HookedTransformer",
                self._model or about.model_name or "",
                device=self._device,
                model_from_pretrained_kwargs=about.model_from_pretrained_kwargs or {},
            )
        return self._models[key]

    @torch.no_grad()
    def _run(self, sae: SAE[Any] | TrainingSAE[Any]) -> TextActivations:
        model = self.model_of(sae)
        store = ActivationsStore.from_sae(
            model,
            sae,
            self._text,
            streaming=isinstance(self._text, str),
            store_batch_size_prompts=_ROWS_PER_BATCH,
            total_tokens=self._n_tokens,
            device=self._device,
        )
        left_out = _left_out(sae.cfg.metadata.exclude_special_tokens, model)
        rows, activations, kept = [], [], []
        for tokens in _rows_of_tokens(store, self._n_tokens):
            acts = store.get_activations(tokens).cpu()
            rows.append(tokens[:, slice(*store.seqpos_slice)].cpu())
            kept.append(~torch.isin(rows[-1], left_out))
            activations.append(acts[kept[-1]])
        if not any(map(len, activations)):
            raise UserError("`text` should fill a row of the model's context.")
        return TextActivations(
            torch.cat(rows), torch.cat(activations).float(), torch.cat(kept).nonzero()
        )


def _key(sae: SAE[Any] | TrainingSAE[Any], *names: str) -> str:
    """What an SAE's config says under some names, to tell one such SAE from another."""
    about = sae.cfg.metadata.to_dict()
    return json.dumps([about.get(name) for name in names], default=str, sort_keys=True)


def _left_out(which: bool | list[int] | None, model: Any) -> Tensor:
    """The ids of special tokens that an SAE was not trained on, as SAELens's config says."""
    ids = get_special_token_ids(model.tokenizer) if which is True else which or []
    return torch.tensor(list(ids), dtype=torch.long)


def _rows_of_tokens(store: ActivationsStore, n_tokens: int) -> Iterator[Tensor]:
    """Rows until there are so many tokens, or the text ends."""
    left = n_tokens
    while left > 0:
        rows = list(islice(store.iterable_sequences, _ROWS_PER_BATCH))
        if not rows:
            return
        yield torch.stack(rows)
        left -= len(rows) * len(rows[0])
