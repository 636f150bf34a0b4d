"""What an evaluation keeps of an SAE's weights."""

from collections.abc import Mapping
from typing import Any

from sae_lens_c2r.evaluation.catalog import WEIGHTS
from sae_lens_c2r.inspection.measures import INTERVALS, THRESHOLDS, Inspection

_COSINES = "max_cosines_from_"


def weights_result(inspection: Inspection) -> dict[str, Any]:
    """What `inspect` measures, in the form of a result file.

    Returns:
        The content of a result file. How many latents have their highest cosine with another
        one between two values is under the lower one, `max_cosines_from_0.98`; the lowest
        includes negative cosines.
    """
    return {
        "eval_type_id": WEIGHTS,
        "eval_result_metrics": {
            "composition": inspection.composition,
            "chance_composition": inspection.chance_composition,
            **{
                f"pairs_above_{threshold}": pairs
                for threshold, pairs in zip(THRESHOLDS, inspection.pairs, strict=True)
            },
            "zero_decoder_rows": inspection.zero_rows,
            **{
                f"{_COSINES}{i / INTERVALS:.2f}": count
                for i, count in enumerate(inspection.cosine_counts)
            },
        },
    }


def max_cosine_counts(metrics: Mapping[str, float]) -> list[float] | None:
    """The distribution of the latents' highest cosines, as `weights_result` keeps it.

    Returns:
        How many latents are in each of equal intervals from 0 to 1; `None` if it does not say.
    """
    counts = [metrics.get(f"{_COSINES}{i / INTERVALS:.2f}") for i in range(INTERVALS)]
    found = [count for count in counts if count is not None]
    return found if len(found) == INTERVALS else None
