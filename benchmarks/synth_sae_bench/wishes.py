"""Which method to train, and at what strength: for each wish what it brings and costs."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.statistics import Interval, Result
from benchmarks.synth_sae_bench.claims import METRICS, metrics_of
from benchmarks.synth_sae_bench.curves import PLAIN, at_strength, difference
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
    Wish("reconstruction as it is", "C2R", 2),
    Wish("no feature in two latents", "C2R", 5),
    Wish("least absorption", "OrtSAE 0.25 + C2R", 5),
    Wish("most features found", "Matryoshka"),
)


def wishes_table(size: Size, results: Sequence[Result]) -> str:
    """What comes of each wish at the first sparsity, less what BatchTopK has.

    Args:
        size: Which size.
        results: Its results.

    Returns:
        The table in Markdown, with intervals over the seeds.
    """
    ours = [each for each in results if each["k"] == size.ks[0]]
    metrics, rows = [name for name in metrics_of(results) if name in SHOWN], []
    for wish in WISHES:
        found = [_above_plain(ours, wish, metric) for metric in metrics]
        cells = [f"{each.mean:+.3f} ± {each.half_width:.3f}" for each in found]
        rows.append([wish.wanted, wish.setting, *cells])
    return markdown_table(["you want", "train", *(METRICS[name] for name in metrics)], rows)


def _above_plain(results: Sequence[Result], wish: Wish, metric: str) -> Interval:
    return difference(
        at_strength(results, wish.method, wish.strength, metric),
        at_strength(results, PLAIN, 0.0, metric),
    )
