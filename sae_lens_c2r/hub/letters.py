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
    measured = {name: sae for name, sae in saes.items() if ABSORPTION in sae.evaluations}
    before = measured.pop(first, None)
    if before is None or len(_of(f"by_letter.{_SCORES[0]}.", before)) < 2:
        return None
    rows = [
        [f"`{name}`", *(_difference(found, before, score) for score in _SCORES)]
        for name, found in measured.items()
        if _way(found) == _way(before)
    ]
    headings = [f"less `{first}`", *(METRICS[score].full_title for score in _SCORES)]
    return markdown_table(headings, rows) if rows else None


def _way(sae: SAERecord) -> tuple[object, ...]:
    """How an SAE was measured: the settings, the probes, and the letters that count."""
    settings = sae.evaluations[ABSORPTION].settings
    return settings, _of("f1_of_probes.", sae), _of("by_letter.", sae).keys()


def _difference(one: SAERecord, other: SAERecord, score: str) -> str:
    """The mean difference of a score over letters, with its 95 % interval by Student's t."""
    found, before = (list(_of(f"by_letter.{score}.", sae).values()) for sae in (one, other))
    low, high = ttest_rel(found, before).confidence_interval()
    return f"{(low + high) / 2:+.3f} ± {(high - low) / 2:.3f}"


def _of(beginning: str, sae: SAERecord) -> dict[str, float]:
    """The numbers of an SAE's absorption whose keys begin so."""
    metrics = sae.metrics_of(ABSORPTION)
    return {key: metrics[key] for key in sorted(metrics) if key.startswith(beginning)}
