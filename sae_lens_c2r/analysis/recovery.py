"""How well an SAE recovers features that are known: SAELens's measures, and ours."""

from typing import Any

import torch
from sae_lens import SAE
from sae_lens.synthetic import SyntheticModel, eval_sae_on_synthetic_data

from sae_lens_c2r.analysis.cofiring import co_firing
from sae_lens_c2r.analysis.hierarchy import hierarchy_absorption
from sae_lens_c2r.analysis.similarity import composition
from sae_lens_c2r.penalties.chance import chance_composition


@torch.no_grad()
def feature_recovery(
    sae: SAE[Any], model: SyntheticModel, *, samples: int = 65_536, batch_size: int = 4096
) -> dict[str, float]:
    """The measures of an SAE of known features.

    Args:
        sae: The SAE, as anybody would load it.
        model: Where the features are known. It draws from torch's random state.
        samples: Samples to measure it on.
        batch_size: Samples at a time.

    Returns:
        The measures by their names; those of absorption if the features have a hierarchy. One
        that the samples do not hold is NaN.
    """
    found = eval_sae_on_synthetic_data(
        sae, model.feature_dict, model.activation_generator, samples, batch_size
    )
    sizes = (min(batch_size, samples - start) for start in range(0, samples, batch_size))
    together = co_firing(sae.encode(model.sample(size)) for size in sizes)
    measures = {
        "explained_variance": found.explained_variance,
        "l0": found.sae_l0,
        "true_l0": found.true_l0,
        "dead_latents": found.dead_latents / sae.cfg.d_sae,
        "mcc": found.mcc,
        "uniqueness": found.uniqueness,
        "precision": found.classification.precision,
        "recall": found.classification.recall,
        "f1": found.classification.f1_score,
        "composition": composition(sae.W_dec),
        "chance_composition": chance_composition(*sae.W_dec.shape),
        "highest_jaccard": together.mean,
        "pairs_above_0.5": together.pairs[0.5],
    }
    if model.hierarchy is None:
        return measures
    absorption = hierarchy_absorption(sae, model, samples=samples, batch_size=batch_size)
    return {
        **measures,
        "absorption": absorption.full[absorption.found].nanmean().item(),
        "absorption_of_all": absorption.full.nanmean().item(),
        "partial_absorption": absorption.partial[absorption.found].nanmean().item(),
        "parents_found": absorption.found.double().mean().item(),
    }
