"""The scale of a training SAE's reconstruction loss, by which coefficients transfer."""

import math
from typing import Literal

from sae_lens.saes.sae import TrainingSAEConfig
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r.penalties import typical_norm

Scaling = Literal["transfer", "none"]


def input_norm(
    cfg: TrainingSAEConfig, sae_in: Tensor, process_group: ProcessGroup | None
) -> Tensor:
    """The norm r of the inputs as the reconstruction loss sees it, which is of order r^2.

    Args:
        cfg: The training SAE's config.
        sae_in: The step's inputs, shape ``[..., d_in]``.
        process_group: Processes over which the batch is split.

    Returns:
        A detached scalar.
    """
    if cfg.normalize_activations == "layer_norm":  # the mean is added back after decoding
        sae_in = sae_in - sae_in.mean(dim=-1, keepdim=True)
    return typical_norm(sae_in, process_group=process_group)


def unit_of_latents(cfg: TrainingSAEConfig, norm: Tensor) -> Tensor | float:
    """What an activation of 1 contributes to the reconstruction that the loss sees.

    It is 1, unless the SAE itself brings every input to the norm sqrt(d_in) and undoes that
    after decoding: SAELens compares the reconstruction with the inputs as they were.

    Args:
        cfg: The training SAE's config.
        norm: The norm of the inputs, `input_norm`.

    Returns:
        A positive number, 0 for inputs of norm 0.
    """
    if cfg.normalize_activations in {"layer_norm", "constant_norm_rescale"}:
        return norm / math.sqrt(cfg.d_in)
    return 1.0
