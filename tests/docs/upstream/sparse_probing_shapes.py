"""SAEBench's sparse probing binds the names of its dimensions to its caller's.

`train_sklearn_probe` has `beartype` without `jaxtyped`, so that a checked caller with more
latents has bound `d_model` already. Newer versions of beartype find them in dictionaries, too.
Proposal: `@jaxtyped(typechecker=beartype)`, as the functions beside it have.
"""

import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintParamViolation
from jaxtyping import Float, jaxtyped
from sae_bench.evals.sparse_probing.probe_training import train_sklearn_probe
from torch import Tensor


@jaxtyped(typechecker=beartype)
def probe_by_one_latent(acts: Float[Tensor, "train_dataset_size d_model"]) -> None:
    """Call it as `train_probe_on_activations` does."""
    labels = torch.arange(len(acts)) % 2
    train_sklearn_probe(acts[:, :1], labels, acts[:, :1], labels)


try:
    probe_by_one_latent(torch.randn(8, 4))
except BeartypeCallHintParamViolation as error:
    print(error)  # the size of dimension d_model is 1 which does not equal the existing value
else:
    raise AssertionError("SAEBench has mended this.")
