"""Which method to train, and at what strength: for each wish what it brings and costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.statistics import Result
from benchmarks.synth_sae_bench.claims import METRICS, Question, metrics_of
from benchmarks.synth_sae_bench.curves import PLAIN
from benchmarks.synth_sae_bench.methods import METHODS
from benchmarks.synth_sae_bench.world import Size
from sae_lens_c2r.reporting.tables import markdown_table

SHOWN = {
    *("explained_variance", "f1", "mcc", "uniqueness", "absorption"),
    *("composition", "highest_jaccard"),
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
    def setting(self) -> str:
        """What to write in a config."""
        method = METHODS[self.method]
        fields = {} if method.coefficient is None else {method.coefficient: self.strength}
        fields |= dict(method.options)
        options = (f"`{name}={value!r}`" for name, value in fields.items())
        return ", ".join([f"`{method.architecture}`", *options])


WISHES = (
    Wish("reconstruction nearly as it is", "C2R", 2),
    Wish("more features found, at little cost", "C2R", 5),
    Wish("least absorption, fewer features in two latents", "OrtSAE 0.25 + C2R", 5),
    Wish("most features found", "Matryoshka"),
)


def wishes_table(size: Size, results: Sequence[Result]) -> str:
    """What comes of each wish in mean over the sparsities, less what BatchTopK has.

    Args:
        size: Which size.
        results: Its results.

    Returns:
        The table in Markdown, with intervals over the seeds.
    """
    metrics, rows = [name for name in metrics_of(results) if name in SHOWN], []
    for wish in WISHES:
        question = Question(wish.method, PLAIN, (wish.strength, 0.0))
        ours = question.everywhere(results, size.ks)
        found = [question.measured(ours, metric) for metric in metrics]
        cells = [f"{each.mean:+.3f} ± {each.half_width:.3f}" for each in found]
        rows.append([wish.wanted, wish.setting, *cells])
    return markdown_table(["you want", "train", *(METRICS[name] for name in metrics)], rows)
