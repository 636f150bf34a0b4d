"""SAEBench's absorption of one SAE less that of another, by letters of the same probes."""

from collections.abc import Mapping

from scipy.stats import ttest_rel

from sae_lens_c2r.analysis.metrics import METRICS
from sae_lens_c2r.evaluation.settings import ABSORPTION
from sae_lens_c2r.reporting.tables import markdown_table
from sae_lens_c2r.saes.record import SAERecord

_SCORES = ("absorption", "full_absorption")


def less_first(saes: Mapping[str, SAERecord], first: str) -> str | None:
    """A table of the other SAEs less the first one, of those that can be compared with it."""
    before = saes[first]
    rows = [
        [f"`{name}`", *(_difference(found, before, score) for score in _SCORES)]
        for name, found in saes.items()
        if name != first and _comparable(found, before)
    ]
    headings = [f"less `{first}`", *(METRICS[score].full_title for score in _SCORES)]
    return markdown_table(headings, rows) if rows else None


def _comparable(one: SAERecord, other: SAERecord) -> bool:
    """Whether two SAEs were measured in the same settings, by the same probes, by letter."""
    ways = [
        (sae.evaluations[ABSORPTION].settings, _of("f1_of_probes.", sae))
        for sae in (one, other)
        if ABSORPTION in sae.evaluations
    ]
    letters = [list(_of(f"by_letter.{_SCORES[0]}.", sae)) for sae in (one, other)]
    return len(ways) == 2 and ways[0] == ways[1] and letters[0] == letters[1] != []


def _difference(one: SAERecord, other: SAERecord, score: str) -> str:
    """The mean difference of a score over letters, with its 95 % interval by Student's t."""
    found, before = (list(_of(f"by_letter.{score}.", sae).values()) for sae in (one, other))
    low, high = ttest_rel(found, before).confidence_interval()
    return f"{(low + high) / 2:+.3f} ± {(high - low) / 2:.3f}"


def _of(beginning: str, sae: SAERecord) -> dict[str, float]:
    """The numbers of an SAE's absorption whose keys begin so."""
    metrics = sae.metrics_of(ABSORPTION)
    return {key: metrics[key] for key in sorted(metrics) if key.startswith(beginning)}
