"""What latents do on text: the model's activations, encoded batch by batch."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from jaxtyping import Float, Int
from sae_lens import SAE, TrainingSAE
from sae_lens.load_model import load_model
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.util import get_special_token_ids
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.offline.source import OFFLINE_DATASET, OFFLINE_MODEL, offline_source

_TOKENS_PER_BATCH = 4096
_ROWS_PER_BATCH = 32


@dataclass(frozen=True)
class TextActivations:
    """A model's activations on text, those of special tokens left out."""

    rows: Int[Tensor, "rows context"]
    activations: Float[Tensor, "tokens d_in"]
    places: Int[Tensor, "tokens 2"]  # row and column of each token in `rows`


@torch.no_grad()
def encode(
    sae: SAE[Any] | TrainingSAE[Any], text: TextActivations
) -> Iterator[tuple[Float[Tensor, "tokens d_in"], Float[Tensor, "tokens d_sae"]]]:
    """The latents' activations on a text, batch by batch.

    Args:
        sae: The SAE.
        text: What its model does on the text.

    Yields:
        A batch of inputs and the latents' activations on it.
    """
    for batch in text.activations.split(_TOKENS_PER_BATCH):
        inputs = batch.to(sae.device, sae.dtype)
        acts = sae.encode(inputs)
        yield inputs, acts.to_dense() if acts.is_sparse else acts


def times_fired(sae: SAE[Any] | TrainingSAE[Any], text: TextActivations) -> Tensor:
    """On how many tokens each latent fires.

    Args:
        sae: The SAE.
        text: What its model does on the text.

    Returns:
        A count for each latent, shape ``[d_sae]``.
    """
    return torch.stack([(acts > 0).sum(dim=0) for _, acts in encode(sae, text)]).sum(dim=0)


def read_text(source: str) -> Dataset | str:
    """What SAELens reads a text from.

    Args:
        source: A file, `.jsonl` with a document under `text` in every line or else one
            document, or the name of a dataset on the Hub.

    Returns:
        The documents, or the name.

    Raises:
        UserError: If a file holds no text.
    """
    path = Path(source)
    if not path.is_file():
        return source
    try:
        content = path.read_text(encoding="utf-8")
        texts = [content]
        if path.suffix == ".jsonl":
            texts = [json.loads(line)["text"] for line in content.splitlines() if line.strip()]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"`text` should be a text, in UTF-8. {path}: {error}") from None
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise UserError(f"`text` should not be empty. Found {path}.")
    return Dataset.from_dict({"text": texts})


def reader_of(text: str, *, model: str | None, n_tokens: int, device: str) -> "TextReader":
    """What reads a text that a command line names.

    Args:
        text: As `read_text` takes it, or the name of the text that comes with its model.
        model: What to load in place of the model that an SAE's config names.
        n_tokens: Tokens at most.
        device: Where the models run.

    Returns:
        The reader.

    Raises:
        UserError: If there is no text, or it does not fit the model.
    """
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
        self._models: dict[tuple[Any, ...], Any] = {}
        self._read: dict[str, TextActivations] = {}

    def activations(self, sae: SAE[Any] | TrainingSAE[Any], name: str) -> TextActivations:
        """The activations that an SAE encodes.

        Args:
            sae: The SAE, whose config says of which model, where, and how the text is cut.
            name: What it is called, for errors.

        Returns:
            The activations.

        Raises:
            UserError: If the model cannot be loaded, has no such place or another
                width, or the text is too short.
        """
        about = sae.cfg.metadata.to_dict()
        key = json.dumps({**about, "d_in": sae.cfg.d_in}, default=str, sort_keys=True)
        if key not in self._read:
            self._read = {key: self._run(sae, name)}  # one at a time: they may be large
        return self._read[key]

    def model_of(self, sae: SAE[Any] | TrainingSAE[Any]) -> Any:
        """The model of an SAE, in SAELens's wrapper.

        Args:
            sae: The SAE.

        Returns:
            The model, loaded once.
        """
        about = sae.cfg.metadata
        model = self._model or about.model_name
        options = about.model_from_pretrained_kwargs or {}
        key = (about.model_class_name, model, json.dumps(options, sort_keys=True))
        if key not in self._models:
            self._models[key] = load_model(
                about.model_class_name or "HookedTransformer",
                model or "",
                device=self._device,
                model_from_pretrained_kwargs=options,
            )
        return self._models[key]

    @torch.no_grad()
    def _run(self, sae: SAE[Any] | TrainingSAE[Any], name: str) -> TextActivations:
        hook_name = sae.cfg.metadata.hook_name
        try:
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
        except KeyError as error:
            raise UserError(
                f"{name}: `model` should have the hook {hook_name}. There is no {error}."
            ) from error
        except Exception as error:  # the Hub, transformers and torch raise many kinds
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(
                f"{name}: `model` should give activations of width {sae.cfg.d_in} at "
                f"{hook_name}, on the text. {reason}"
            ) from error
        if not rows:
            raise UserError(f"{name}: `text` should fill a row of the model's context.")
        return TextActivations(
            torch.cat(rows), torch.cat(activations).float(), torch.cat(kept).nonzero()
        )


def _left_out(which: bool | list[int] | None, model: Any) -> Tensor:
    """The ids of special tokens that an SAE was not trained on, as SAELens's config says."""
    ids = get_special_token_ids(model.tokenizer) if which is True else which or []
    return torch.tensor(list(ids), dtype=torch.long)


def _rows_of_tokens(store: ActivationsStore, n_tokens: int) -> Iterator[Tensor]:
    """Rows until there are so many tokens, or the text ends."""
    left = n_tokens
    while left > 0:
        rows = []
        for _ in range(_ROWS_PER_BATCH):
            row = next(store.iterable_sequences, None)
            if row is not None:
                rows.append(row)
        if not rows:
            return
        yield torch.stack(rows)
        left -= len(rows) * len(rows[0])
