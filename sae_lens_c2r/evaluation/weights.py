"""What an evaluation keeps of an SAE's weights."""

from typing import Any

from sae_lens_c2r.evaluation.catalog import WEIGHTS
from sae_lens_c2r.inspection.measures import THRESHOLDS, Inspection


def weights_result(inspection: Inspection) -> dict[str, Any]:
    """What `inspect` measures, in the form of a result file.

    Args:
        inspection: What it measured.

    Returns:
        The content of a result file.
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
        },
    }
