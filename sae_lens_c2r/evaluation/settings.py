"""What is asked for on the command line, and the settings of each evaluation."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import is_there
from sae_lens_c2r.evaluation.catalog import EVALUATIONS
from sae_lens_c2r.models.text_source import TextSource
from sae_lens_c2r.saes.record import SAE_LENS

_BATCH_SIZE, _DTYPE = 32, "float32"  # of models that SAEBench does not know
_OF_SAE_LENS = {
    "batch_size_prompts": 16,
    "n_eval_reconstruction_batches": 10,
    "n_eval_sparsity_variance_batches": 10,
}
# A CPU has less time. Logits of few rows at once take it no fresh memory for each batch.
_ON_A_CPU = {
    "batch_size_prompts": 4,
    "n_eval_reconstruction_batches": 8,
    "n_eval_sparsity_variance_batches": 40,
}


@dataclass
class Options:
    """Options of `sae-lens-c2r evaluate`, whose help says what each is."""

    out: Path
    sae_bench: Sequence[str] = ()
    sae_lens: bool = True
    model: str | None = None
    text: str | None = None
    # Of the text: its `split`, `subset` and `column`, those that are given.
    part: Mapping[str, str] = field(default_factory=dict)
    # Settings in place of the defaults: `core.context_size`, with its value.
    overrides: Mapping[str, Any] = field(default_factory=dict)
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Name files and folders by their whole paths; raise for what would do nothing."""
        if self.text is not None and (path := TextSource(self.text).path):
            self.text = str(path.resolve())
        for key, value in self.overrides.items():
            if key.partition(".")[0] not in self.names:
                run = ", ".join(self.names) or "none"
                raise UserError(f"--set {key}", f"be of an evaluation that is run: {run}")
            if isinstance(value, str) and value and is_there(value):
                self.overrides = {**self.overrides, key: str(Path(value).resolve())}
        if not self.sae_lens and (self.text is not None or self.part):
            advice = "SAEBench's core reads another by `--set core.dataset=org/name`."
            should = "be left out without SAELens's evaluation, which alone reads it"
            raise UserError("text", should, more=advice)
        for name in self.names:
            self.settings(name, self.model or "")

    @property
    def names(self) -> list[str]:
        """The evaluations beside that of the weights."""
        return [*[SAE_LENS] * self.sae_lens, *self.sae_bench]

    def settings(self, name: str, model: str) -> dict[str, Any]:
        """All settings of an evaluation."""
        dotted = {key.partition(".")[::2]: value for key, value in self.overrides.items()}
        changes = {key: value for (of, key), value in dotted.items() if of == name}
        return settings_of(name, changes, model=model, device=self.device)


def settings_of(
    name: str, changes: Mapping[str, Any], *, model: str, device: str
) -> dict[str, Any]:
    """All settings of an evaluation; a UserError for one that it does not have."""
    if name == SAE_LENS:
        usual = _ON_A_CPU if device.startswith("cpu") else _OF_SAE_LENS
        _check(changes, usual, name)
        return {**usual, **changes}
    if name not in EVALUATIONS:
        raise UserError("sae_bench", f"be some of {', '.join(EVALUATIONS)}", name)
    evaluation = EVALUATIONS[name]
    config_class, fixed = evaluation.config(), ("model_name", *evaluation.settings)
    fields = list(config_class.__dataclass_fields__)
    settable = evaluation.settable or [key for key in fields if key not in fixed]
    _check(changes, settable, name)
    kept = [key for key in fields if key in (*settable, *fixed)]
    values = {**_of_model(model), **evaluation.settings, **changes}
    config = config_class(**{key: values[key] for key in values if key in kept})
    # As `evaluation.json` will have them, which has no NaN.
    dumped = json.dumps({key: getattr(config, key) for key in kept}, allow_nan=False)
    settings: dict[str, Any] = json.loads(dumped)
    return settings


def _check(changes: Mapping[str, Any], settable: Collection[str], name: str) -> None:
    for key in changes:
        if key not in settable:
            raise UserError(f"--set {name}.{key}", f"be one of {', '.join(settable)}")


def short_name(model: str) -> str:
    """SAEBench's name of a model: that on the Hub without its organisation."""
    return model.rpartition("/")[2].lower()


def _of_model(model: str) -> dict[str, Any]:
    """The settings that SAEBench itself has for a model."""
    from sae_bench.sae_bench_utils import activation_collection as known

    name = short_name(model)
    return {
        "model_name": model,
        "llm_batch_size": known.LLM_NAME_TO_BATCH_SIZE.get(name, _BATCH_SIZE),
        "llm_dtype": known.LLM_NAME_TO_DTYPE.get(name, _DTYPE),
    }
