"""Absorption by training length: at which budget a figure holds."""

from collections.abc import Sequence

from benchmarks.statistics import Interval, Result
from benchmarks.study.claims import C2R, CLAIMS
from benchmarks.study.runs import TRAINED_LONGER
from benchmarks.study.tables import regimes_of
from benchmarks.study.world import REGIMES
from sae_lens_c2r.reporting.tables import markdown_table

JUDGED = [
    claim
    for claim in CLAIMS
    if (claim.metric, claim.of) == ("absorption", (C2R, {}))
    and claim.less in [(method, {}) for method in TRAINED_LONGER]
]


def lengths_table(results: Sequence[Result]) -> str:
    """Absorption after every number of steps that there is, at the first sparsity.

    Args:
        results: Of all lengths.

    Returns:
        The table in Markdown, with intervals over the seeds.
    """
    rows = []
    for name in regimes_of(results):
        k = REGIMES[name].ks[0]
        ours = [each for each in results if (each["regime"], each["k"]) == (name, k)]
        for steps in sorted({each["steps"] for each in ours}):
            then = [each for each in ours if each["steps"] == steps]
            found = [str(_absorption(then, method)) for method in TRAINED_LONGER]
            judged = [claim.judged(then) for claim in JUDGED]
            rows.append([name, str(k), f"{steps:,}", *found, *judged])
    claims = [claim.claim for claim in JUDGED]
    return markdown_table(["", "k", "steps", *TRAINED_LONGER.values(), *claims], rows)


def _absorption(results: Sequence[Result], method: str) -> Interval:
    return Interval.of(
        [
            each["absorption"]
            for each in results
            if each["architecture"] == method and not each["options"]
        ]
    )
