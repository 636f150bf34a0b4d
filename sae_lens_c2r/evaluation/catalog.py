"""Which evaluations there are, and what the paper's columns are in their results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sae_lens_c2r._support.errors import UserError

SAE_LENS = "sae_lens"  # SAELens's own `run_evals`
WEIGHTS = "weights"  # what needs no data
API_KEY = "OPENAI_API_KEY"  # where autointerp finds its key


@dataclass(frozen=True)
class SAEBenchEvaluation:
    """One of SAEBench's evaluations.

    Args:
        name: What the command line calls it.
        config: Where its config class is, as module and name.
        settings: Values of ours in place of SAEBench's defaults: those of SAEBench's own
            script for all evaluations.
        settable: The fields that can be set; `None` for all.
        type_id: What its result file calls it, where that is not its name.
        refused: Why it cannot be run.
    """

    name: str
    config: tuple[str, str] = ("", "")
    settings: Mapping[str, Any] = field(default_factory=dict)
    settable: tuple[str, ...] | None = None
    type_id: str = ""
    refused: str = ""


_SCR_AND_TPP = ("sae_bench.evals.scr_and_tpp.eval_config", "ScrAndTppEvalConfig")
EVALUATIONS = {
    evaluation.name: evaluation
    for evaluation in (
        SAEBenchEvaluation(
            "core",
            ("sae_bench.evals.core.eval_config", "CoreEvalConfig"),
            {
                "batch_size_prompts": 16,
                "n_eval_reconstruction_batches": 200,
                "n_eval_sparsity_variance_batches": 2000,
                "exclude_special_tokens_from_reconstruction": True,
            },
            # SAEBench's `multiple_evals` takes no more, and computes everything.
            settable=(
                "batch_size_prompts",
                "context_size",
                "dataset",
                "exclude_special_tokens_from_reconstruction",
                "llm_dtype",
                "n_eval_reconstruction_batches",
                "n_eval_sparsity_variance_batches",
            ),
        ),
        SAEBenchEvaluation(
            "absorption",
            ("sae_bench.evals.absorption.eval_config", "AbsorptionEvalConfig"),
            type_id="absorption_first_letter",
        ),
        SAEBenchEvaluation("scr", _SCR_AND_TPP, {"perform_scr": True}),
        SAEBenchEvaluation("tpp", _SCR_AND_TPP, {"perform_scr": False}),
        SAEBenchEvaluation(
            "sparse_probing",
            ("sae_bench.evals.sparse_probing.eval_config", "SparseProbingEvalConfig"),
        ),
        SAEBenchEvaluation(
            "sparse_probing_sae_probes",
            (
                "sae_bench.evals.sparse_probing_sae_probes.eval_config",
                "SparseProbingSaeProbesEvalConfig",
            ),
        ),
        SAEBenchEvaluation("ravel", ("sae_bench.evals.ravel.eval_config", "RAVELEvalConfig")),
        SAEBenchEvaluation(
            "autointerp", ("sae_bench.evals.autointerp.eval_config", "AutoInterpEvalConfig")
        ),
        SAEBenchEvaluation(
            "meta_structure",
            ("sae_bench.evals.meta_structure.eval_config", "MetaStructureEvalConfig"),
            type_id="meta_structure_decoder_variance",
        ),
        SAEBenchEvaluation(
            "unlearning",
            refused="SAEBench asks for a corpus that has to be requested by hand, and leaves "
            "it out of its own script for all evaluations.",
        ),
        SAEBenchEvaluation("mdl", refused="SAEBench 0.6 itself fails in it."),
    )
}


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Args:
        title: What the paper calls it.
        heading: The same in a few letters, for a terminal.
        evaluation: Whose result it is.
        metric: The result's key.
        better: Which is better, 1 for more and -1 for less.
    """

    title: str
    heading: str
    evaluation: str
    metric: str
    better: int


# SCR and TPP with 20 latents, as SAEBench's own figures; the paper does not say how many.
COLUMNS = (
    Column("KL score", "KL\nscore", "core", "model_behavior_preservation.kl_div_score", 1),
    Column(
        "loss recovered",
        "loss\nrec.",
        "core",
        "model_performance_preservation.ce_loss_score",
        1,
    ),
    Column("interp", "interp", "autointerp", "autointerp.autointerp_score", 1),
    Column("composition", "compo-\nsition", WEIGHTS, "composition", -1),
    Column(
        "absorption",
        "absorp-\ntion",
        "absorption",
        "mean.mean_absorption_fraction_score",
        -1,
    ),
    Column("split", "split", "absorption", "mean.mean_num_split_features", -1),
    Column("SCR", "SCR", "scr", "scr_metrics.scr_metric_threshold_20", 1),
    Column("TPP", "TPP", "tpp", "tpp_metrics.tpp_threshold_20_total_metric", 1),
    Column("disentanglement", "disent.", "ravel", "ravel.disentanglement_score", 1),
)


def type_id(name: str) -> str:
    """What an evaluation's result file calls it.

    Args:
        name: The evaluation, of SAEBench's or of ours.

    Returns:
        Its `eval_type_id`.
    """
    evaluation = EVALUATIONS.get(name)
    return evaluation.type_id or name if evaluation else name


def find_evaluation(name: str) -> SAEBenchEvaluation:
    """One of SAEBench's evaluations that can be run.

    Args:
        name: Its name.

    Returns:
        The evaluation.

    Raises:
        UserError: If SAEBench has none of that name, or it cannot be run.
    """
    evaluation = EVALUATIONS.get(name)
    if evaluation is None:
        known = ", ".join(each.name for each in EVALUATIONS.values() if not each.refused)
        raise UserError(f"`sae-bench` should be some of {known}. Found {name}.")
    if evaluation.refused:
        raise UserError(f"`sae-bench` should not have {name}: {evaluation.refused}")
    return evaluation
