"""The options of the command line, and the settings of each evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models.text_source import TextSource
from sae_lens_c2r.saes.record import SAE_LENS

CORE, ABSORPTION = "core", "absorption"
EVALUATIONS = (CORE, ABSORPTION)  # SAEBench's that run here
ABSORPTION_ADVICE = (
    "SAEBench's authors advise against its absorption score for models below 1 B parameters, "
    "for SAEs below 16k latents, and for undertrained SAEs, which score low."
)
_BATCH_SIZE, _DTYPE = 32, "float32"  # of models that SAEBench does not know
_OF_CORE = {  # as in SAEBench's own script for all evaluations
    "dataset": "Skylion007/openwebtext",
    "context_size": 128,
    "batch_size_prompts": 16,
    "n_eval_reconstruction_batches": 200,
    "n_eval_sparsity_variance_batches": 2000,
    "exclude_special_tokens_from_reconstruction": True,
}
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
            if key == f"{CORE}.dataset" and Path(value).exists():  # read from another folder
                self.overrides = {**self.overrides, key: str(Path(value).resolve())}
            if key.partition(".")[0] not in self.names:
                run = ", ".join(self.names) or "none"
                raise UserError(f"--set {key}", f"be of an evaluation that is run: {run}")
        if not self.sae_lens and (self.text is not None or self.part):
            raise UserError("text", "be left out where SAELens's evaluation is")
        for name in self.names:
            self.settings(name, self.model or "")

    @property
    def names(self) -> list[str]:
        """The evaluations beside that of the weights."""
        return [*[SAE_LENS] * self.sae_lens, *self.sae_bench]

    def settings(self, name: str, model: str) -> dict[str, Any]:
        """All settings of an evaluation; a UserError for one that it does not have."""
        if name == SAE_LENS:
            usual: dict[str, Any] = _ON_A_CPU if self.device.startswith("cpu") else _OF_SAE_LENS
        elif name in EVALUATIONS:
            usual = _of_sae_bench(name, model)
        else:
            raise UserError("sae_bench", f"be some of {', '.join(EVALUATIONS)}", name)
        settable = [key for key in usual if key != "model_name"]  # `--model` is
        changes = {}
        for dotted, value in self.overrides.items():
            of, _, key = dotted.partition(".")
            if of == name and key not in settable:  # SAEBench would ignore it
                raise UserError(f"--set {dotted}", f"be one of {', '.join(settable)}")
            if of == name:
                changes[key] = value
        return {**usual, **changes}


def _of_sae_bench(name: str, model: str) -> dict[str, Any]:
    """The settings of one of SAEBench's evaluations, with those that it has for a model."""
    from sae_bench.evals.absorption.eval_config import AbsorptionEvalConfig
    from sae_bench.sae_bench_utils import activation_collection as known

    short_name = model.rpartition("/")[2].lower()
    batch_size = known.LLM_NAME_TO_BATCH_SIZE.get(short_name, _BATCH_SIZE)
    dtype = known.LLM_NAME_TO_DTYPE.get(short_name, _DTYPE)
    of_model = {"model_name": model, "llm_dtype": dtype}
    if name == CORE:
        return {**of_model, **_OF_CORE}
    return {**asdict(AbsorptionEvalConfig()), **of_model, "llm_batch_size": batch_size}
