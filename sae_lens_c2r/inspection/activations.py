"""A language model's activations on a text: where an SAE says that it takes them."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from sae_lens.training.activations_store import ActivationsStore
from tqdm import tqdm

from sae_lens_c2r._support.errors import UserError, counted, error_of
from sae_lens_c2r.inspection.contexts import AnySAE, TextActivations
from sae_lens_c2r.models.loading import load, on_this_machine, options_for
from sae_lens_c2r.models.reading import Reading, within_norm
from sae_lens_c2r.models.text import check_tokenizer, read_text, rows_for
from sae_lens_c2r.models.text_source import TextSource
from sae_lens_c2r.saes.sae_ref import check_scaled

_TOKENS_PER_PASS = 1 << 14  # at most, but at least one row


@dataclass
class ActivationSource:
    """Runs models over one text, each once for all SAEs that read it alike."""

    text: TextSource
    _: KW_ONLY
    n_tokens: int  # at most, those that are left out among them
    device: str
    instead: dict[str, Any] = field(default_factory=dict)  # of what SAEs say of their reading
    tell: Callable[[str], None] = lambda _: None  # called with what is worth knowing of it
    _models: dict[str, Any] = field(default_factory=dict, init=False)
    _read: dict[str, TextActivations] = field(default_factory=dict, init=False)

    def activations(self, sae: AnySAE, name: str) -> TextActivations:
        """The activations that an SAE encodes; an error with its name if there are none."""
        try:
            reading = self.reading_of(sae)
            if reading.assumed:
                self.tell(f"{name}: {reading.assumed}")
            key = f"{reading.way} {reading.text_as_trained(self.text)} {sae.cfg.d_in}"
            if key not in self._read:
                self._read = {}  # one at a time: they may be large
                self._read[key] = self._run(reading, sae.cfg.d_in)
        except UserError as error:
            raise error_of(name, error) from None
        return self._read[key]

    def reading_of(self, sae: AnySAE) -> Reading:
        """How an SAE reads text on this machine; a UserError if it reads none."""
        check_reconstructs(sae)
        said = Reading.of(sae.cfg.metadata)
        options = said.model_from_pretrained_kwargs
        model = self.instead.get("model_name") or said.model_name or ""
        options = on_this_machine(options_for(model, options, of=said.model_name), self.device)
        changes = {"model_from_pretrained_kwargs": options, **self.instead}
        if Path(model).resolve() != Path(said.model_name or "").resolve():
            changes.setdefault("model_hub_id", None)  # another one
        reading = said.model_copy(update=changes)
        for key in ("model_name", "hook_name", "context_size"):
            if getattr(reading, key) is None:
                advice = "SAEs of known features have none, and read no text."
                raise UserError(f"metadata.{key}", "be in the config, or be given", more=advice)
        return reading

    def model_of(self, reading: Reading) -> Any:
        """The model of a reading, one at a time."""
        key = str(
            (reading.model_name, reading.model_class_name, reading.model_from_pretrained_kwargs)
        )
        if key not in self._models:
            self._models.clear()
            self._models[key] = load(reading, self.device)
        return self._models[key]

    def store_of(self, reading: Reading, *, d_in: int) -> ActivationsStore:
        """SAELens's store of what an SAE encodes on the text."""
        name, size = reading.model_hub_id or reading.model_name, reading.context_size
        assert size is not None, "a reading of this machine has it"
        source = reading.text_as_trained(self.text)
        rows = rows_for(read_text(source), name, size)
        model = self.model_of(reading)
        check_tokenizer(rows, source, model.tokenizer)
        return reading.store(model, rows, d_in=d_in, device=self.device)

    @torch.no_grad()
    def _run(self, reading: Reading, d_in: int) -> TextActivations:
        store = self.store_of(reading, d_in=d_in)
        rows = list(islice(store.iterable_sequences, -(-self.n_tokens // store.context_size)))
        if not rows:
            raise UserError("text", f"fill a row of {store.context_size:,} tokens", "fewer")
        tokens, positions = torch.stack(rows), slice(*reading.seqpos_slice)
        asked = torch.ones_like(tokens, dtype=torch.bool, device="cpu")
        asked.view(-1)[self.n_tokens :] = False
        inside, shown = asked[:, positions], tokens[:, positions].cpu()
        kept = inside & reading.kept(tokens.cpu(), store.model.tokenizer)
        n_kept = int(kept.sum())
        n_inside = int(inside.sum())
        left_out = {
            f"positions outside of {list(reading.seqpos_slice)}": int(asked.sum()) - n_inside,
            "special tokens": n_inside - n_kept,
        }
        acts = torch.empty(n_kept, d_in)  # at once: twice that may not fit
        together = max(1, _TOKENS_PER_PASS // store.context_size)
        multiple = reading.max_activation_norm_multiple
        if multiple is not None:  # of the medians of training's passes
            together = reading.store_batch_size_prompts
        n_filled = 0
        passes = list(zip(tokens.split(together), kept.split(together), strict=True))
        with tqdm(passes, "Running the model", leave=False, delay=5) as bar:
            for each, kept_of_pass in bar:
                found = store.get_activations(each).cpu()[kept_of_pass]
                fits = within_norm(found, multiple)
                kept_of_pass[kept_of_pass.clone()] = fits
                found = found[fits]
                acts[n_filled : n_filled + len(found)] = found
                n_filled += len(found)
        left_out[f"tokens of a norm above {multiple} times the median"] = n_kept - n_filled
        if not n_filled:
            found_in = f"{counted(len(rows), 'row')} of {tokens.shape[1]:,} without one"
            raise UserError("text", "have a token that the SAE was trained on", found_in)
        return TextActivations(
            shown,
            acts[:n_filled],
            kept.nonzero(),
            tokenizer=store.model.tokenizer,
            text=reading.text_as_trained(self.text).shown,
            model=str(reading.model_name),
            left_out={what: number for what, number in left_out.items() if number},
        )


def check_reconstructs(sae: AnySAE) -> None:
    """Raise for what cannot be run on text."""
    architecture = sae.cfg.architecture()
    if architecture == "temporal" or architecture.endswith("transcoder"):
        raise UserError(
            "An SAE should reconstruct, token by token, what it encodes to be run on text. "
            f"A {architecture} does not."
        )
    check_scaled(sae)
