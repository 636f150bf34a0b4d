"""What an evaluation records of an SAE's weights."""

from hashlib import sha256
from typing import Any

import torch
from sae_lens import SAE

from sae_lens_c2r.inspection.measures import THRESHOLDS, Inspection


def weights_sha256(sae: SAE[Any]) -> str:
    """Which weights these are, whatever file they come from.

    Args:
        sae: The SAE, as of `Source.load_for_inference`.

    Returns:
        SHA-256 of the names, types, shapes and bytes of its weights.
    """
    digest = sha256()
    for name, tensor in sorted(sae.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def weights_result(inspection: Inspection) -> dict[str, Any]:
    """What `inspect` measures, in the form of a result file.

    Args:
        inspection: What it measured.

    Returns:
        The content of a result file.
    """
    return {
        "eval_type_id": "weights",
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
