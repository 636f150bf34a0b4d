"""Which method to train, and at what strength: for each wish what it brings and costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean

from benchmarks.statistics import Result
from benchmarks.synth_sae_bench.claims import METRICS, Question, metrics_of
from benchmarks.synth_sae_bench.curves import PLAIN
from benchmarks.synth_sae_bench.methods import METHODS
from benchmarks.synth_sae_bench.world import Size
from sae_lens_c2r.reporting.tables import markdown_table

SHOWN = {
    *("explained_variance", "f1", "mcc", "uniqueness", "parents_found"),
    *("absorption", "absorption_of_all", "highest_jaccard", "dead_latents"),
}


@dataclass(frozen=True)
class Wish:
    """What somebody wants of an SAE, and what comes closest to it.

    Args:
        wanted: In words.
        method: Name of the method.
        strength: Its strength.
    """

    wanted: str
    method: str
    strength: float = 0.0

    @property
    def question(self) -> Question:
        """What it brings beyond BatchTopK."""
        return Question(self.method, PLAIN, (self.strength, 0.0))

    @property
    def setting(self) -> str:
        """What to write in a config."""
        method = METHODS[self.method]
        fields = {} if method.coefficient is None else {method.coefficient: self.strength}
        fields |= dict(method.options)
        options = (f"`{name}={value!r}`" for name, value in fields.items())
        return ", ".join([f"`{method.architecture}`", *options])


WISHES = (
    Wish("to compare with", "OrtSAE", 0.25),
    Wish("reconstruction nearly as it is", "C2R", 2),
    Wish("more features found, at little cost", "C2R", 5),
    Wish("the highest F1", "Matryoshka"),
)


def wishes_table(size: Size, results: Sequence[Result]) -> str:
    """What BatchTopK has, and what each wish brings beyond it, in mean over the sparsities.

    Args:
        size: Which size.
        results: Its results.

    Returns:
        The table in Markdown, with intervals over the seeds; a wish that no two seeds have
        the SAEs for, at every sparsity, is left out.
    """
    metrics, rows = [name for name in metrics_of(results) if name in SHOWN], []
    if plain := [each for each in results if each["method"] == PLAIN]:
        means = (f"{fmean(each[metric] for each in plain):.3f}" for metric in metrics)
        rows.append(["to compare with", f"`{METHODS[PLAIN].architecture}`", *means])
    for wish in WISHES:
        complete = wish.question.of_complete_seeds(results, size.ks)
        found = [wish.question.measured(complete, metric) for metric in metrics]
        if all(isfinite(each.half_width) for each in found):
            cells = [f"{each.mean:+.3f} ± {each.half_width:.3f}" for each in found]
            rows.append([wish.wanted, wish.setting, *cells])
    return markdown_table(["you want", "train", *(METRICS[name] for name in metrics)], rows)
