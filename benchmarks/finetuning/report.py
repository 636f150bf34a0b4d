"""The tables of fine-tuning: means over seeds with 95 % confidence intervals, in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.finetuning.runs import BEFORE, MORE, WAYS
from benchmarks.statistics import Interval
from sae_lens_c2r.reporting.tables import markdown_table

NOT_MEASURED = "Not measured yet."
_SHARED = {
    "composition": "composition",
    "composition_of_live": "of latents that fire",
    "explained_variance": "explained variance",
    "l0": "L0",
}
_KNOWN = {
    **_SHARED,
    "dead_latents": "dead latents (share)",
    "absorption": "absorption",
    "mcc": "MCC",
}
_MINILM = {
    **_SHARED,
    "pairs_above_0_9": "pairs > 0.9",
    "pairs_above_0_7": "pairs > 0.7",
    "dead_latents": "dead latents",
}
_KEPT = {
    "cosine_median": "cosine with before, median",
    "cosine_1st_percentile": "1st percentile",
}


def known_features(results: Sequence[Mapping[str, Any]]) -> str:
    """The table of known features, and the differences to two of its rows, seed by seed."""
    if not results:
        return NOT_MEASURED
    names = [way.name for way in WAYS]
    rows = [[name, *_cells(name, results), *_cosines(name, results)] for name in names]
    parts = [markdown_table(["", *_KNOWN.values(), *_KEPT.values()], rows)]
    for base in (BEFORE, MORE):
        others = [name for name in names if name not in (BEFORE, base)]
        rows = [[name, *_cells(name, results, base)] for name in others]
        parts += [
            f"Less “{base}”, seed by seed:",
            markdown_table(["", *_KNOWN.values()], rows),
        ]
    chance = Interval.of([each["ways"][BEFORE]["chance_composition"] for each in results])
    parts.append(f"{len(results)} seeds; chance level of composition {chance.mean:.3f}.")
    return "\n\n".join(parts)


def _cells(
    way: str, results: Sequence[Mapping[str, Any]], base: str | None = None
) -> list[str]:
    """The means over seeds; less those of another way, if one is named."""

    def values(name: str) -> list[float]:
        found = [each["ways"] for each in results]
        return [ways[way][name] - (ways[base][name] if base else 0.0) for ways in found]

    return [str(Interval.of(values(name))) for name in _KNOWN]


def _cosines(way: str, results: Sequence[Mapping[str, Any]]) -> list[str]:
    finetuned = next(each.finetuned for each in WAYS if each.name == way)
    if not finetuned:  # its latents are none of those before
        return ["" for _ in _KEPT]
    return [str(Interval.of([each["ways"][way][name] for each in results])) for name in _KEPT]


def minilm(result: Mapping[str, Any] | None) -> str:
    """The table of the demo's SAE."""
    if result is None:
        return NOT_MEASURED
    rows = []
    for way in WAYS:
        numbers = result["ways"][way.name]
        cells = [_shown(numbers[name]) for name in _MINILM]
        cosines = [f"{numbers[name]:.3f}" if way.finetuned else "" for name in _KEPT]
        rows.append([way.name, *cells, *cosines])
    before = result["ways"][BEFORE]
    return "\n\n".join(
        [
            markdown_table(["", *_MINILM.values(), *_KEPT.values()], rows),
            f"One SAE, {result['held_out_tokens']:,} tokens that it was not trained on; chance "
            f"level of composition {before['chance_composition']:.3f}.",
        ]
    )


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:.3f}"
