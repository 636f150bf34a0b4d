"""A language model's activations on a text: where an SAE's config says that it takes them."""

import json
import sys
from bisect import bisect_left
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, PositiveInt
from rich.filesize import decimal
from sae_lens.load_model import load_model
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.util import get_special_token_ids

from sae_lens_c2r._support.errors import (
    UserError,
    counted,
    error_of,
    first_sentence,
    needing_the_hub,
)
from sae_lens_c2r._support.libraries import no_false_alarms
from sae_lens_c2r._support.progress import with_bar
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED, harmless_options, remote_code
from sae_lens_c2r.inspection.contexts import AnySAE, Numbers, TextActivations
from sae_lens_c2r.models.loading import (
    TRANSFORMER_LENS,
    TRANSFORMERS,
    check_model_name,
    official_name,
    on_this_machine,
    options_for,
)
from sae_lens_c2r.models.offline import where_model_is
from sae_lens_c2r.models.text import FIRST_ROWS, Text, length_that_keeps_most
from sae_lens_c2r.penalties.neighbors import has_fast_bfloat16
from sae_lens_c2r.saes.hashes import READING
from sae_lens_c2r.saes.sae_ref import check_keys, check_scaled

_ROWS_PER_BATCH, _TOKENS_PER_BATCH = 32, 1 << 14  # at most, but at least one row
_WORTH_TELLING = 1 << 32  # bytes
_MODEL = ("model_class_name", "model_name", "model_from_pretrained_kwargs")
_DTYPES = ("dtype", "torch_dtype")
# What most of SAELens's own loaders take where a release says nothing.
_IF_UNSAID = {"context_size": 1024, "prepend_bos": True}
_PLACE = ("hook_name", "hook_head_index", "context_size")
_JOINED = ("sequence_separator_token", "disable_concat_sequences")  # not read by `from_sae`
# What SAELens takes in their place.
_IF_MISSING = {"sequence_separator_token": "bos", "disable_concat_sequences": False}
_IF_EMPTY: dict[str, Any] = {
    **{"model_class_name": "HookedTransformer", "model_from_pretrained_kwargs": {}},
    "seqpos_slice": [None],
}


class _Metadata(BaseModel):
    """The keys of an SAE's metadata that are read; each may be missing."""

    model_config = ConfigDict(protected_namespaces=())

    model_name: str | None = None
    model_class_name: str | None = None
    model_from_pretrained_kwargs: dict[str, Any] | None = None
    hook_name: str | None = None
    hook_head_index: int | None = None
    context_size: PositiveInt | None = None
    prepend_bos: bool | None = None
    seqpos_slice: list[int | None] | tuple[int | None, ...] | None = None
    exclude_special_tokens: bool | list[int] | None = None
    disable_concat_sequences: bool | None = None
    sequence_separator_token: int | str | None = None


@dataclass
class ActivationSource:
    """Runs models over one text, each once for all SAEs that ask for the same activations."""

    text: Text
    _: KW_ONLY
    n_tokens: int  # at most, special ones among them
    device: str
    model: str | None = None  # in place of the model that an SAE's config names
    tell: Callable[[str], None] = lambda _: None  # called with what is worth knowing of it
    _models: dict[str, Any] = field(default_factory=dict, init=False)
    _read: dict[str, TextActivations] = field(default_factory=dict, init=False)

    def activations(self, sae: AnySAE, name: str) -> TextActivations:
        """The activations that an SAE encodes; a UserError with its name if there are none."""
        hook_name = sae.cfg.metadata.hook_name
        try:
            self._take_unsaid(sae)  # SAEs that then read alike are compared
            key = _key(sae, "model_name", *READING, *_PLACE) + str(sae.cfg.d_in)
            if key not in self._read:
                self._read = {key: self._run(sae)}  # one at a time: they may be large
        except UserError as error:
            raise error_of(name, error) from None
        except Exception as error:  # the Hub, transformers and torch raise many kinds
            model = self._name_of_model(sae)
            if isinstance(error, KeyError) and str(hook_name) in str(error):
                wrong = ("metadata.hook_name", f"be a hook of {model}", hook_name)
                if self.model is not None:
                    wrong = ("model", f"have the hook {hook_name}", model)
                raise UserError(*wrong, of=name) from error
            if "index out of range in self" in str(error):  # torch's words for an embedding
                should = f"be at most the tokens that {model} takes in a row"
                found = sae.cfg.metadata.context_size
                raise UserError("metadata.context_size", should, found, of=name) from error
            told = f"no activations of width {sae.cfg.d_in} from {model} at {hook_name}."
            raise UserError(f"{told} {first_sentence(error)}", of=name) from error
        return self._read[key]

    @remote_code()
    def model_of(self, sae: AnySAE) -> Any:
        """The model of an SAE, in SAELens's wrapper."""
        metadata, name = sae.cfg.metadata, self._name_of_model(sae)
        check_reconstructs(sae)
        known = {**metadata.to_dict(), "model_name": name}
        for key in ("model_name", "hook_name"):
            if known.get(key) is None:
                advice = "SAEs of known features have none, and read no text."
                should = "be in the config"
                if key == "model_name":
                    should += ", or `model` be given"
                raise UserError(f"metadata.{key}", should, more=advice)
        key = _key(sae, *_MODEL)
        if key not in self._models:
            self._models.clear()  # one at a time, as of what they read
            check_model_name(name, "metadata.model_name" if self.model is None else "model")
            options = harmless_options(metadata.model_from_pretrained_kwargs, f"{name}'s SAE")
            options = options_for(name, options, of=metadata.model_name)
            options = on_this_machine(options, self.device)
            if TRUSTED.get():
                options[TRUST] = True
            device = torch.device(self.device)
            if device.type == "cpu" and not has_fast_bfloat16(device):  # float32 is faster
                in_bfloat16 = (key for key in _DTYPES if "bfloat16" in str(options.get(key)))
                options |= dict.fromkeys(in_bfloat16, "float32")
            with (
                redirect_stdout(sys.stderr),  # as TransformerLens prints, and `--json` too
                needing_the_hub(f"The model {name}"),
            ):
                try:
                    self._models[key] = load_model(
                        metadata.model_class_name or TRANSFORMER_LENS,
                        where_model_is(name, options.get("revision")),
                        device=self.device,
                        model_from_pretrained_kwargs=options,
                    )
                except ValueError as error:
                    if metadata.model_class_name or official_name(name):
                        raise
                    should = f"be in cfg.json, as TransformerLens has no model {name}"
                    advice = f"Add `{TRANSFORMERS}`, by which transformers loads the model."
                    wrong = ("metadata.model_class_name", should, "none", advice)
                    raise UserError(*wrong) from error
        return self._models[key]

    @no_false_alarms()
    def store_of(self, sae: AnySAE, **options: Any) -> ActivationsStore:
        """SAELens's store of what an SAE encodes on the text, with options of its own."""
        model, metadata = self.model_of(sae), sae.cfg.metadata
        text = self.text.for_model(self._name_of_model(sae), metadata.context_size)
        options |= {key: metadata[key] for key in _JOINED if key in metadata}
        options |= {"context_size": text.context_size, "device": self.device}
        text.check_tokenizer(model.tokenizer)
        store = ActivationsStore.from_sae(model, sae, text, **options)
        _fit_into_a_row(store)
        if store.context_size < metadata.context_size:
            told = (
                f"{text.named} has {store.context_size:,} tokens in a row, where the SAE was "
                f"trained on rows of {metadata.context_size:,}."
            )
            if store.disable_concat_sequences:
                told += " Shorter documents are left out, as the SAE does not join them."
            self.tell(told)
        return store

    def _take_unsaid(self, sae: AnySAE) -> None:
        """Give an SAE that does not say on which rows it was trained what SAELens assumes."""
        metadata = sae.cfg.metadata
        unsaid = {k: v for k, v in _IF_UNSAID.items() if metadata.get(k) is None}
        if "context_size" in unsaid:
            longest = _longest_row(self.model_of(sae))
            unsaid["context_size"] = min(unsaid["context_size"], longest)
        for key, value in unsaid.items():
            metadata[key] = value
        if unsaid:
            taken = ", ".join(f"{key} = {value}" for key, value in unsaid.items())
            self.tell(f"The SAE does not say on which rows it was trained. Taken: {taken}.")

    @no_false_alarms()
    @torch.no_grad()
    def _run(self, sae: AnySAE) -> TextActivations:
        store = self.store_of(
            sae, store_batch_size_prompts=_ROWS_PER_BATCH, total_tokens=self.n_tokens
        )
        n_together = max(1, min(_ROWS_PER_BATCH, _TOKENS_PER_BATCH // store.context_size))
        n_rows = -(-self.n_tokens // store.context_size)
        rows = list(islice(store.iterable_sequences, n_rows))
        text: Any = store.dataset
        if text.left_out:
            self.tell(text.left_out)
        tokenizer: Any = store.model.tokenizer
        excluded = excludes_special_tokens(sae)
        special = get_special_token_ids(tokenizer) if excluded is True else excluded or []
        tokens = torch.stack(rows)
        kept = ~torch.isin(tokens.cpu(), torch.tensor(special, dtype=torch.long))
        kept.view(-1)[self.n_tokens :] = False
        kept = kept[:, slice(*store.seqpos_slice)]
        if not kept.any():
            left_out, found = store.seqpos_slice[0] or 0, counted(len(rows), "row")
            should = "have a token that the SAE was trained on: not a special one"
            if left_out:
                should += f", and after the first {left_out} of its row"
            raise UserError("text", should, f"{found} of {tokens.shape[1]:,} without one")
        acts = torch.empty(int(kept.sum()), sae.cfg.d_in)  # at once: twice that may not fit
        if acts.nbytes > _WORTH_TELLING:
            self.tell(f"The activations take {decimal(acts.nbytes)} of memory.")
        kept_of = kept.split(n_together)
        places = acts.split([int(of.sum()) for of in kept_of])
        parts = zip(tokens.split(n_together), kept_of, places, strict=True)
        with with_bar(list(parts), "Running the model") as batches:
            for each, of, place in batches:
                place.copy_(store.get_activations(each).cpu()[of])
        return TextActivations(
            tokens[:, slice(*store.seqpos_slice)].cpu(),
            acts,
            kept.nonzero(),
            tokenizer=tokenizer or Numbers(),
            text=self.text.named,
            model=self._name_of_model(sae),
        )

    def _name_of_model(self, sae: AnySAE) -> Any:
        return self.model or sae.cfg.metadata.model_name


def check_reconstructs(sae: AnySAE) -> None:
    """Raise for what cannot be run on text, or does not say in its metadata how."""
    architecture = sae.cfg.architecture()
    if architecture == "temporal" or architecture.endswith("transcoder"):
        raise UserError(
            "An SAE should reconstruct, token by token, what it encodes to be run on text. "
            f"A {architecture} does not."
        )
    check_keys(_Metadata, sae.cfg.metadata.to_dict(), "metadata.")
    check_scaled(sae)


def excludes_special_tokens(sae: AnySAE) -> bool | list[int]:
    """Whether an SAE was trained without special tokens, or which; True if it does not say."""
    said: bool | list[int] | None = sae.cfg.metadata.exclude_special_tokens
    # A BOS token's norm can be 30 times the others': few SAEs were trained on it.
    return True if said is None else said


def _longest_row(model: Any) -> int:
    """Most tokens that a model takes in a row; a large number if it does not say."""
    config = getattr(model, "cfg", None) or getattr(model.model, "config", None)
    found = (getattr(config, name, None) for name in ("n_ctx", "max_position_embeddings"))
    return next(filter(None, found), sys.maxsize)


def _key(sae: AnySAE, *names: str) -> str:
    """The values of some names in an SAE's config, to tell one such SAE from another."""
    said = {**_IF_MISSING, **sae.cfg.metadata.to_dict()}
    said["exclude_special_tokens"] = excludes_special_tokens(sae)
    values = [said.get(name) or _IF_EMPTY.get(name, said.get(name)) for name in names]
    return json.dumps(values, default=str, sort_keys=True)


def _fit_into_a_row(store: Any) -> None:
    """Let a text that is shorter than the model's context be one row of its own length."""

    def is_too_short(n_tokens: int) -> bool:
        store.context_size = n_tokens
        return next(store._iterate_tokenized_sequences(), None) is None

    wanted, text, tokenizer = store.context_size, store.dataset, store.model.tokenizer
    if is_too_short(wanted) and store.disable_concat_sequences and not text.is_tokens:
        # Documents that do not fill a row, with SAELens's token before them, are left out.
        bos = tokenizer.bos_token_id if store.prepend_bos else None
        documents = islice(filter(len, store._iterate_raw_dataset_tokens()), FIRST_ROWS)
        lengths = [len(each) + (bos not in (None, each[0])) for each in documents]
        wanted = length_that_keeps_most(lengths or [wanted])
    if is_too_short(wanted):
        store.context_size = bisect_left(range(1, wanted), True, key=is_too_short)
    if store.context_size == 0:
        raise UserError("text", "have a token", "none")
    store.iterable_sequences = store._iterate_tokenized_sequences()
