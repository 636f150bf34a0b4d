"""The evaluations that there are, and the paper's columns in their results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SAE_LENS = "sae_lens"  # SAELens's own `run_evals`
KNOWN_FEATURES = "known_features"  # in its place, where there is no language model
HELD_OUT = "held_out"  # what the demo measures on text that it does not train on
TRAINING = "training"  # what SAELens counts at the end of a training
WEIGHTS = "weights"  # what needs no data
CO_FIRING = "co_firing"  # what is measured of it beside SAELens's own
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
    type_id: str = ""  # its name in its result file, where that is another

    @property
    def package(self) -> str:
        """The package of SAEBench's that has it."""
        return f"sae_bench.evals.{self.folder or self.name}"


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
    SAEBenchEvaluation(ABSORPTION, "AbsorptionEvalConfig", type_id="absorption_first_letter"),
    SAEBenchEvaluation("scr", settings={"perform_scr": True}, **_SCR_AND_TPP),
    SAEBenchEvaluation("tpp", settings={"perform_scr": False}, **_SCR_AND_TPP),
    SAEBenchEvaluation("sparse_probing", "SparseProbingEvalConfig"),
    SAEBenchEvaluation("sparse_probing_sae_probes", "SparseProbingSaeProbesEvalConfig"),
    SAEBenchEvaluation(RAVEL, "RAVELEvalConfig"),
    SAEBenchEvaluation("autointerp", "AutoInterpEvalConfig"),
    SAEBenchEvaluation(
        "meta_structure", "MetaStructureEvalConfig", type_id="meta_structure_decoder_variance"
    ),
)
EVALUATIONS = {evaluation.name: evaluation for evaluation in _EVALUATIONS}


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    title: str  # its name in the paper
    heading: str  # the same in a few letters, for a terminal
    evaluation: str  # whose result it is
    metric: str  # the result's key
    better: int  # 1 for more, -1 for less and 0 for neither
    shown: str = ".3f"  # the format of its numbers

    @property
    def arrow(self) -> str:
        """A sign for which is better."""
        return {1: " ↑", 0: "", -1: " ↓"}[self.better]


_ABSORPTION = "mean.mean_absorption_fraction_score"
# What SAELens and SAEBench both measure, by the names that they share.
EXPLAINED_VARIANCE = "reconstruction_quality.explained_variance"
L0 = "sparsity.l0"
RECOVERED = "model_performance_preservation.ce_loss_score"
# Columns of one title are one: each SAE has the number of the first of them that it has.
# SCR and TPP with 20 latents, as SAEBench's own figures; the paper does not say how many.
COLUMNS = (
    Column("explained variance", "expl.\nvar.", SAE_LENS, EXPLAINED_VARIANCE, 1),
    Column("L0", "L0", SAE_LENS, L0, 0, ".1f"),
    Column("explained variance", "expl.\nvar.", "core", EXPLAINED_VARIANCE, 1),
    Column("L0", "L0", "core", L0, 0, ".1f"),
    Column("explained variance", "expl.\nvar.", KNOWN_FEATURES, "explained_variance", 1),
    Column("L0", "L0", KNOWN_FEATURES, "l0", 0, ".1f"),
    Column("features present", "fea-\ntures", KNOWN_FEATURES, "true_l0", 0, ".1f"),
    Column("share dead", "dead", KNOWN_FEATURES, "dead_latents", -1),
    Column("MCC", "MCC", KNOWN_FEATURES, "mcc", 1),
    Column("uniqueness", "unique", KNOWN_FEATURES, "uniqueness", 1),
    Column("precision", "prec.", KNOWN_FEATURES, "precision", 1),
    Column("recall", "recall", KNOWN_FEATURES, "recall", 1),
    Column("F1", "F1", KNOWN_FEATURES, "f1", 1),
    Column("absorption by children", "absorp-\ntion", KNOWN_FEATURES, "absorption", -1),
    Column("parents found", "parents\nfound", KNOWN_FEATURES, "parents_found", 1),
    Column("co-firing", "co-\nfiring", KNOWN_FEATURES, "highest_jaccard", -1),
    Column("KL score", "KL\nscore", "core", "model_behavior_preservation.kl_div_score", 1),
    Column("loss recovered", "loss\nrec.", "core", RECOVERED, 1),
    Column("interp", "interp", "autointerp", "autointerp.autointerp_score", 1),
    Column("composition", "compo-\nsition", WEIGHTS, "composition", -1),
    Column("chance level", "chance\nlevel", WEIGHTS, "chance_composition", 0),
    Column("co-firing", "co-\nfiring", SAE_LENS, f"{CO_FIRING}.highest_jaccard", -1),
    Column("F1 of probes", "probes'\nF1", ABSORPTION, f"{PROBES}.mean", 1),
    Column("absorption", "absorp-\ntion", ABSORPTION, _ABSORPTION, -1),
    Column("split", "split", ABSORPTION, "mean.mean_num_split_features", -1),
    Column("SCR", "SCR", "scr", "scr_metrics.scr_metric_threshold_20", 1),
    Column("TPP", "TPP", "tpp", "tpp_metrics.tpp_threshold_20_total_metric", 1),
    Column("disentanglement", "disent.", "ravel", "ravel.disentanglement_score", 1),
)
