"""Matryoshka with `layer_norm` fails at its first training step.

The normalization is undone for each sub-SAE, and its statistics are forgotten the first time.
Proposal: keep `ln_mu` and `ln_std` until the next inputs are normalized.
"""

import torch
from sae_lens import TrainingSAE
from sae_lens.saes.sae import TrainStepInput

settings = {"architecture": "matryoshka_batchtopk", "d_in": 8, "d_sae": 16, "k": 2}
settings |= {"matryoshka_widths": [4, 16], "normalize_activations": "layer_norm"}
sae = TrainingSAE.from_dict(settings)
inputs = TrainStepInput(torch.randn(4, 8), {}, None, n_training_steps=0, is_logging_step=False)
try:
    sae.training_forward_pass(inputs)
except AttributeError as error:
    print(error)  # 'MatryoshkaBatchTopKTrainingSAE' object has no attribute 'ln_std'
else:
    raise AssertionError("SAELens has mended this.")
