"""The pictures of a card, of the numbers that its evaluations have."""

from collections.abc import Iterator

from matplotlib.figure import Figure

from sae_lens_c2r.evaluation.catalog import EXPLAINED_VARIANCE, L0, SAE_LENS, WEIGHTS
from sae_lens_c2r.evaluation.report import max_cosine_counts
from sae_lens_c2r.hub.facts import RepoFacts, SAEFacts
from sae_lens_c2r.reporting.figures import (
    Distribution,
    color_of,
    legend_above,
    max_cosine_figure,
    png,
)

_FARTHER = 1.1  # by this factor L0 differs where k does
_COMPOSITION, _CHANCE = "composition", "chance_composition"


def pictures(facts: RepoFacts) -> dict[str, bytes]:
    """Draw PNG files, by their names: those pictures of which there are numbers."""
    drawn = {"max_cosines.png": _max_cosines(facts), "trade_off.png": _trade_off(facts)}
    return {name: png(figure) for name, figure in drawn.items() if figure is not None}


def _max_cosines(facts: RepoFacts) -> Figure | None:
    kinds = _colors(facts)
    distributions: list[Distribution] = []
    labeled: set[str] = set()
    chance = set()
    for sae in facts.saes.values():
        weights = sae.evaluations.get(WEIGHTS)
        counts = max_cosine_counts(weights.metrics) if weights else None
        if weights is None or not counts or not sum(counts):
            continue
        kind = _kind(sae)
        label = None if kind in labeled else kind
        distributions.append(Distribution(label, kinds[kind], counts))
        labeled.add(kind)
        chance |= {weights.metrics[_CHANCE]} if _CHANCE in weights.metrics else set()
    return max_cosine_figure(distributions, chance) if distributions else None


def _trade_off(facts: RepoFacts) -> Figure | None:
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    of_one_kind = (sorted(_points(facts, name)) for name in (SAE_LENS, "core"))
    points = next((points for points in of_one_kind if _is_a_trade_off(points)), None)
    if points is None:
        return None
    for kind, color in _colors(facts).items():
        of_kind = [point[1:] for point in points if point[0] == kind]
        if of_kind:
            l0, variance, composition = zip(*of_kind, strict=True)
            left.plot(l0, variance, "o-", color=color, label=kind)
            right.plot(l0, composition, "o-", color=color)
    # From 0, so that a small difference looks small.
    widest = 1.15 * max(l0 for _, l0, _, _ in points)
    left.set(xlabel="L0", ylabel="explained variance", xlim=(0, widest), ylim=(0, 1))
    right.set(xlabel="L0", ylabel="composition", xlim=(0, widest), ylim=(0, 1))
    legend_above(figure)
    return figure


def _is_a_trade_off(points: list[tuple[str, float, float, float]]) -> bool:
    """Whether SAEs of one kind differ in their sparsity."""
    l0_of: dict[str, list[float]] = {}
    for kind, l0, _, _ in points:
        l0_of.setdefault(kind, []).append(l0)
    return any(max(found) > _FARTHER * min(found) for found in l0_of.values())


def _points(facts: RepoFacts, name: str) -> Iterator[tuple[str, float, float, float]]:
    for sae in facts.saes.values():
        weights, found = sae.evaluations.get(WEIGHTS), sae.evaluations.get(name)
        metrics = {**found.metrics, **weights.metrics} if found and weights else {}
        if {L0, EXPLAINED_VARIANCE, _COMPOSITION} <= metrics.keys():
            yield _kind(sae), metrics[L0], metrics[EXPLAINED_VARIANCE], metrics[_COMPOSITION]


def _kind(sae: SAEFacts) -> str:
    return sae.trained_as or sae.architecture


def _colors(facts: RepoFacts) -> dict[str, str]:
    kinds = sorted({_kind(sae) for sae in facts.saes.values()})
    return {kind: color_of(number) for number, kind in enumerate(kinds)}
