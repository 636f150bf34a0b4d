"""What is asked of the benchmark's results, each question at a strength that it names."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan

from benchmarks.statistics import Interval, Result
from benchmarks.synth_sae_bench.curves import (
    AT_CHANCE,
    EQUALS,
    HALFWAY,
    PLAIN,
    PRICE,
    PRICES,
    Equal,
    at_equal,
    at_strength,
    difference,
)

Values = dict[tuple[int, int], float]  # by seed and sparsity
METRICS = {
    "explained_variance": "explained variance",
    "real_explained_variance": "of the real part",
    "f1": "F1",
    "mcc": "MCC",
    "uniqueness": "uniqueness",
    "features_found": "features found",
    "parents_found": "parents found",
    "children_found": "children found",
    "absorption": "absorption",
    "absorption_of_all": "absorption of all edges",
    "absorption_by_found_children": "absorption by found children",
    "split": "latents per feature",
    "composition": "composition",
    "composition_of_live": "composition of live latents",
    "highest_jaccard": "highest Jaccard",
    "firing_with_another": "firing with another",
    "dead_latents": "dead latents",
}
LOWER_IS_BETTER = {
    *("absorption", "absorption_of_all", "absorption_by_found_children", "split"),
    *("highest_jaccard", "firing_with_another", "dead_latents"),
}
NO_MERIT = {
    "composition",
    "composition_of_live",
}  # Below the level of chance, lower is not better.


def metrics_of(results: Sequence[Result]) -> list[str]:
    """Which of the metrics all results have, in the order in which they are shown.

    Args:
        results: Of one size; where there are none, there are no metrics either.

    Returns:
        Keys of `METRICS`.
    """
    return [metric for metric in METRICS if results and all(metric in each for each in results)]


@dataclass(frozen=True)
class Question:
    """Is one method ahead of another?

    Args:
        first: Name of the one.
        second: Name of the other.
        at: Where on their curves, or the strengths of both.
    """

    first: str
    second: str
    at: Equal | tuple[float, float]

    def measured(self, results: Sequence[Result], metric: str) -> Interval:
        """The difference in a metric, of the first less the second.

        Args:
            results: Of one size and training length.
            metric: Which metric.

        Returns:
            Its interval over the seeds.
        """
        return difference(*self._values(results, metric))

    def rests_on(self, results: Sequence[Result]) -> list[tuple[int, int]]:
        """Of which seeds and sparsities the difference is.

        Args:
            results: Of one size and training length.

        Returns:
            The pairs (seed, k): of others no curve comes to the point.
        """
        first, second = self._values(results, PRICE)
        return [each for each in first if isfinite(first[each] - second.get(each, nan))]

    def of_complete_seeds(self, results: Sequence[Result], ks: Sequence[int]) -> list[Result]:
        """The results of the seeds in which the difference can be taken at each sparsity.

        Args:
            results: Of one size and training length.
            ks: The sparsities; results of others are left out.

        Returns:
            Some of the results.
        """
        pairs = self.rests_on(results)
        complete = {seed for seed, _ in pairs if all((seed, k) in pairs for k in ks)}
        return [each for each in results if each["seed"] in complete and each["k"] in ks]

    def _values(self, results: Sequence[Result], metric: str) -> tuple[Values, Values]:
        if isinstance(self.at, Equal):
            return (
                at_equal(results, self.first, self.at, metric),
                at_equal(results, self.second, self.at, metric),
            )
        return (
            at_strength(results, self.first, self.at[0], metric),
            at_strength(results, self.second, self.at[1], metric),
        )

    @property
    def where(self) -> str:
        """The strengths, in words."""
        if isinstance(self.at, Equal):
            return self.at.name
        if not any(self.at):
            return "as they are"
        return "at " + " and ".join(f"{strength:g}" for strength in self.at if strength)


def verdict(found: Interval, metric: str) -> str:
    """Whether the first is ahead, behind, or neither can be told; of no merit nothing."""
    if not found.half_width < float("inf"):
        return "not measured"
    if metric in NO_MERIT:
        return ""
    ahead = -found.sign if metric in LOWER_IS_BETTER else found.sign
    return {1: "ahead", -1: "behind", 0: "undecided"}[ahead]


EXCESS, ORT_EXCESS = "C2R, excess gate", "OrtSAE, excess gate"
MATRYOSHKA = "Matryoshka"
QUESTIONS = (
    Question("C2R", PLAIN, (2, 0)),
    Question("C2R", PLAIN, (5, 0)),
    Question("C2R", PLAIN, (10, 0)),
    Question("C2R", PLAIN, (20, 0)),
    Question("C2R", "C2R", (5, 2)),
    Question("C2R", "C2R", (10, 5)),
    Question("C2R", "C2R", (20, 5)),
    Question(EXCESS, PLAIN, (1, 0)),
    Question(EXCESS, PLAIN, (5, 0)),
    Question(EXCESS, PLAIN, (20, 0)),
    Question(EXCESS, PLAIN, (60, 0)),
    Question(EXCESS, PLAIN, (200, 0)),
    Question(EXCESS, EXCESS, (5, 1)),
    Question(EXCESS, "C2R", (5, 2)),
    Question(EXCESS, "C2R", (5, 5)),
    Question("OrtSAE", PLAIN, (0.25, 0)),
    Question("OrtSAE", PLAIN, (1, 0)),
    Question("OrtSAE", PLAIN, (4, 0)),
    Question(MATRYOSHKA, PLAIN, (0, 0)),
    Question(f"{MATRYOSHKA} + C2R", MATRYOSHKA, (5, 0)),
    Question(f"{MATRYOSHKA} + C2R", MATRYOSHKA, (20, 0)),
    Question(f"{MATRYOSHKA} + {EXCESS}", MATRYOSHKA, (5, 0)),
    Question("OrtSAE 0.25 + C2R", PLAIN, (5, 0)),
    Question("OrtSAE 0.25 + C2R", "C2R", (5, 5)),
    Question("OrtSAE 0.25 + C2R", "C2R", (20, 20)),
    Question(f"OrtSAE 0.25 + {EXCESS}", PLAIN, (5, 0)),
    Question(ORT_EXCESS, PLAIN, (0.5, 0)),
    Question(ORT_EXCESS, PLAIN, (2, 0)),
    Question("C2R", "OrtSAE", (2, 0.25)),
    Question("C2R", "OrtSAE", (5, 0.25)),
    Question("OrtSAE 0.25 + C2R", "OrtSAE", (5, 0.25)),
    Question(f"OrtSAE 0.25 + {EXCESS}", "OrtSAE", (5, 0.25)),
    *(Question("C2R", "OrtSAE", equal) for equal in EQUALS),
    *(Question(EXCESS, "C2R", equal) for equal in (*PRICES, HALFWAY, AT_CHANCE)),
    Question(EXCESS, ORT_EXCESS, AT_CHANCE),
    Question(ORT_EXCESS, "OrtSAE", AT_CHANCE),
    Question("C2R, directions only", "C2R", (5, 5)),
    Question("C2R, activations only", "C2R", (5, 5)),
    Question("C2R, directions only", "C2R", (20, 20)),
    Question("C2R, activations only", "C2R", (20, 20)),
    Question("C2R, directions only", PLAIN, (5, 0)),
    Question("C2R, directions only", PLAIN, (20, 0)),
    Question("C2R, activations only", PLAIN, (5, 0)),
    Question("C2R, activations only", PLAIN, (20, 0)),
    *(
        Question(f"C2R, {half} only", "C2R", equal)
        for half in ("directions", "activations")
        for equal in (*PRICES, AT_CHANCE)
    ),
)
