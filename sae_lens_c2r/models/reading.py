"""How a text is read for an SAE: all that decides which activations the SAE sees.

A `Reading` is made of a plan's settings, or of what an SAE says of itself, and every command
asks it alone. It knows no SAE: its fields have the names of SAELens's metadata.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.util import get_special_token_ids
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.remote_code import TRUST
from sae_lens_c2r.models.text_source import TextSource

TRANSFORMER_LENS, TRANSFORMERS = "HookedTransformer", "AutoModelForCausalLM"
# What SAELens's metadata lacks, and we write into them beside SAELens's own keys.
ADDED = (
    *("model_kwargs", "autocast_lm", "use_chat_formatting", "max_activation_norm_multiple"),
    *("store_batch_size_prompts", "dataset_split", "dataset_subset", "dataset_column"),
    "model_hub_id",
)
_PARTS = {"dataset_split": "split", "dataset_subset": "subset", "dataset_column": "column"}
_OF_SOURCE = {"dataset_path": "dataset", **_PARTS}  # their names in a release
_USUAL = {"center_writing_weights": False}  # SAELens's word for no options of TransformerLens
# Of which it is worth telling what is taken where an SAE does not say.
_TOLD = (
    *("prepend_bos", "sequence_separator_token", "disable_concat_sequences"),
    *("use_chat_formatting", "seqpos_slice", "exclude_special_tokens"),
    "max_activation_norm_multiple",
)
# Where null says something, and not that the SAE says nothing.
_NULL_COUNTS = ("sequence_separator_token", "max_activation_norm_multiple")


class Reading(BaseModel, frozen=True, protected_namespaces=()):
    """All that decides which activations an SAE sees."""

    model_config = ConfigDict(strict=True)

    # The model, as it is loaded and run.
    model_name: str | None = None
    model_hub_id: str | None = None  # of a model in a folder, which says how it reads rows
    model_class_name: str = TRANSFORMER_LENS
    model_from_pretrained_kwargs: dict[str, Any] = {}
    model_kwargs: dict[str, Any] = {}
    autocast_lm: bool = False
    # The place in it.
    hook_name: str | None = None
    hook_head_index: int | None = None
    # The text that an SAE was trained on.
    dataset_path: str | None = None
    dataset_split: str | None = None
    dataset_subset: str | None = None
    dataset_column: str | None = None
    # The rows of tokens that are made of it.
    context_size: PositiveInt | None = None
    use_chat_formatting: bool = False
    prepend_bos: bool = True
    sequence_separator_token: int | str | None = "bos"
    disable_concat_sequences: bool = False
    # The tokens that are left out. A BOS token's norm can be 30 times the others', so few SAEs
    # were trained on special tokens, whatever SAELens's default is.
    seqpos_slice: tuple[int | None, ...] = (None,)
    exclude_special_tokens: bool | tuple[int, ...] = True
    max_activation_norm_multiple: float | None = None  # of the median norm of a pass's tokens
    store_batch_size_prompts: PositiveInt = 32  # rows in a pass of the model

    @classmethod
    def of(cls, metadata: Any) -> "Reading":
        """Read what an SAE says in its metadata; a UserError for a value of another type."""
        said = {key: metadata[key] for key in metadata.keys() & cls.model_fields.keys()}
        given = {k: v for k, v in said.items() if v is not None or k in _NULL_COUNTS}
        for key, value in given.items():
            if isinstance(value, list):  # as JSON has tuples
                given[key] = tuple(value)
        options = dict(given.get("model_from_pretrained_kwargs") or {})
        options.pop(TRUST, None)  # which is asked for anew each time
        if options == _USUAL:
            options = {}
        given["model_from_pretrained_kwargs"] = options
        if not given.get("seqpos_slice", True):  # all of them
            del given["seqpos_slice"]
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            problem = error.errors()[0]
            key = str(problem["loc"][0])
            should = problem["msg"].removeprefix("Input should ")
            raise UserError(f"metadata.{key}", should, repr(said[key])) from None

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "Reading":
        """Read what a plan says, or the settings in `training.json`."""
        return cls.of(metadata_of(settings))

    @property
    def unsaid(self) -> dict[str, Any]:
        """How rows are made and what of them is left out, as far as an SAE does not say it."""
        return {key: getattr(self, key) for key in _TOLD if key not in self.model_fields_set}

    @property
    def assumed(self) -> str:
        """A sentence on what an SAE does not say; nothing if it says all."""
        taken = ", ".join(f"{key} = {value}" for key, value in self.unsaid.items())
        return taken and f"It does not say how its text was read. Taken: {taken}."

    @property
    def text(self) -> TextSource | None:
        """The text that the SAE was trained on, as far as it is known."""
        if not self.dataset_path:
            return None
        return TextSource(
            self.dataset_path, **{of: getattr(self, key) for key, of in _PARTS.items()}
        )

    def text_as_trained(self, asked: TextSource) -> TextSource:
        """A text that is asked for; of the training's own, the parts that were trained on."""
        own = self.text
        if own is None or own.place != asked.place:
            return asked
        return TextSource(own.dataset, **{**own.part, **asked.part})

    @property
    def way(self) -> str:
        """All but the text, as JSON: the same for SAEs that are given the same activations."""
        left_out = {"dataset_path", *_PARTS}
        if self.max_activation_norm_multiple is None:
            left_out.add("store_batch_size_prompts")  # which only medians depend on
        return self.model_dump_json(exclude=left_out)

    def runner(self) -> dict[str, Any]:
        """The fields of a release's `runner` that have a text read like this."""
        left_out = {"model_name", "model_hub_id", "hook_name", "context_size", *_OF_SOURCE}
        fields = self.model_dump(mode="json", exclude=left_out)
        fields["hook_head_indices"] = fields.pop("hook_head_index")
        said = {key for key, value in fields.items() if value is not None}
        return {key: fields[key] for key in fields if key in {*said, *_NULL_COUNTS}}

    def store(self, model: Any, text: Any, *, d_in: int, device: str, rows: int = 0) -> Any:
        """SAELens's store of the activations of a text, so many `rows` in a pass."""
        assert self.hook_name is not None, "checked before the model was loaded"
        assert self.context_size is not None, "checked before the model was loaded"
        return ActivationsStore(
            model=model,
            dataset=text,
            streaming=True,
            hook_name=self.hook_name,
            hook_head_index=self.hook_head_index,
            context_size=self.context_size,
            d_in=d_in,
            n_batches_in_buffer=1,
            total_training_tokens=0,
            store_batch_size_prompts=rows or self.store_batch_size_prompts,
            train_batch_size_tokens=1,
            prepend_bos=self.prepend_bos,
            normalize_activations="none",
            device=torch.device(device),
            dtype="float32",
            model_kwargs=self.model_kwargs,
            autocast_lm=self.autocast_lm,
            seqpos_slice=self.seqpos_slice,
            disable_concat_sequences=self.disable_concat_sequences,
            sequence_separator_token=self.sequence_separator_token,  # type: ignore[arg-type]
            use_chat_formatting=self.use_chat_formatting,
        )

    def kept(self, tokens: Int[Tensor, "rows context"], tokenizer: Any) -> Tensor:
        """Which tokens at the positions of `seqpos_slice` are not special ones."""
        special = torch.tensor(self.special(tokenizer), dtype=torch.long, device=tokens.device)
        return ~torch.isin(tokens[:, slice(*self.seqpos_slice)], special)

    def special(self, tokenizer: Any) -> list[int]:
        """The tokens that are left out wherever they stand."""
        if self.exclude_special_tokens is True:
            return get_special_token_ids(tokenizer)
        return list(self.exclude_special_tokens or ())


def metadata_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of an SAE that is trained with a plan's settings, all keys given."""
    source, runner = settings["source"], settings["runner"]
    usual = {
        **Reading().model_dump(),
        "exclude_special_tokens": False,
    }  # as of SAELens's runner
    options = runner.get("model_from_pretrained_kwargs") or {}
    if source.get("revision"):
        options = {**options, "revision": source["revision"]}
    return {
        **usual,
        **{key: runner[key] for key in runner if key in usual},
        "model_name": source.get("name") or source.get("hub_id"),
        "model_hub_id": source.get("hub_id") if "/" in (source.get("name") or "") else None,
        "model_from_pretrained_kwargs": options,
        "hook_name": source.get("hook_name"),
        "hook_head_index": runner.get("hook_head_indices"),
        "context_size": source.get("context_size"),
        **{key: source.get(of) for key, of in _OF_SOURCE.items()},
    }


def complete(metadata: Any, settings: Mapping[str, Any]) -> None:
    """Have an SAE say what only the record of its training says."""
    for key, value in metadata_of(settings).items():
        is_said = key in metadata and (metadata[key] is not None or key in _NULL_COUNTS)
        if not is_said and (value is not None or key in _NULL_COUNTS):
            metadata[key] = value


def within_norm(
    acts: Float[Tensor, "tokens d_in"], multiple: float | None
) -> Bool[Tensor, " tokens"]:
    """Which tokens of a pass have a norm of at most a multiple of the pass's median."""
    if multiple is None or len(acts) == 0:
        return torch.ones(len(acts), dtype=torch.bool, device=acts.device)
    norms = torch.linalg.vector_norm(acts, dim=-1, dtype=torch.float32)
    kept = norms <= multiple * norms.median()
    if not kept.any():  # no norm is within a median that is NaN
        raise UserError(
            "The model should give finite activations. Found NaN in a batch of "
            f"{len(acts):,} tokens."
        )
    return kept
