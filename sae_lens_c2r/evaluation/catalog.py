"""SAEBench's evaluations that there are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

ABSORPTION = "absorption"  # SAEBench's
RAVEL = "ravel"
PROBES = "f1_of_probes"  # of first letters, on which it rests
API_KEY = "OPENAI_API_KEY"  # where autointerp finds its key


@dataclass(frozen=True)
class SAEBenchEvaluation:
    """One of SAEBench's evaluations, by its name on the command line."""

    name: str
    config_class: str
    # Values of ours for defaults of SAEBench's: those of its own script for all evaluations.
    settings: Mapping[str, Any] = field(default_factory=dict)
    settable: tuple[str, ...] | None = None  # the fields that can be set; `None` for all
    folder: str = ""  # in SAEBench, where that is not its name

    @property
    def package(self) -> str:
        """The package of SAEBench's that has it."""
        return f"sae_bench.evals.{self.folder or self.name}"

    def config(self) -> Any:
        """The class of its settings."""
        return getattr(import_module(f"{self.package}.eval_config"), self.config_class)


ABSORPTION_ADVICE = (
    "SAEBench's authors advise against its absorption score for models below 1 B parameters, "
    "for SAEs below 16k latents, and for undertrained SAEs, which score low."
)
_CORE = {
    "batch_size_prompts": 16,
    "n_eval_reconstruction_batches": 200,
    "n_eval_sparsity_variance_batches": 2000,
    "exclude_special_tokens_from_reconstruction": True,
}
# SAEBench's `multiple_evals` takes no more, and computes everything.
_OF_CORE = ("context_size", "dataset", "llm_dtype", *_CORE)
_SCR_AND_TPP: dict[str, Any] = {"config_class": "ScrAndTppEvalConfig", "folder": "scr_and_tpp"}
_EVALUATIONS = (  # all but two, of which docs/evaluate.md tells why they cannot be run
    SAEBenchEvaluation("core", "CoreEvalConfig", _CORE, tuple(sorted(_OF_CORE))),
    SAEBenchEvaluation(ABSORPTION, "AbsorptionEvalConfig"),
    SAEBenchEvaluation("scr", settings={"perform_scr": True}, **_SCR_AND_TPP),
    SAEBenchEvaluation("tpp", settings={"perform_scr": False}, **_SCR_AND_TPP),
    SAEBenchEvaluation("sparse_probing", "SparseProbingEvalConfig"),
    SAEBenchEvaluation(
        "sparse_probing_sae_probes",
        "SparseProbingSaeProbesEvalConfig",
        # In a folder of this command's: results that are there are not computed again.
        {"results_path": "artifacts/sparse_probing_sae_probes"},
    ),
    SAEBenchEvaluation(RAVEL, "RAVELEvalConfig"),
    SAEBenchEvaluation("autointerp", "AutoInterpEvalConfig"),
    SAEBenchEvaluation("meta_structure", "MetaStructureEvalConfig"),
)
EVALUATIONS = {evaluation.name: evaluation for evaluation in _EVALUATIONS}
