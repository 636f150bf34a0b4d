"""A TopK SAE with sparse activations and rescaling has no backward pass on a CPU.

Proposal: rescale the sparse tensor's values, `torch.sparse_coo_tensor(acts.indices(),
acts.values() * norms[acts.indices()[-1]], acts.shape)`.
"""

import torch
from sae_lens import TrainingSAE
from sae_lens.saes.sae import TrainStepInput

settings = {"architecture": "topk", "d_in": 8, "d_sae": 16, "k": 2}
settings |= {"use_sparse_activations": True, "rescale_acts_by_decoder_norm": True}
sae = TrainingSAE.from_dict(settings)
inputs = TrainStepInput(torch.randn(4, 8), {}, None, n_training_steps=0, is_logging_step=False)
loss = sae.training_forward_pass(inputs).loss
try:
    loss.backward()
except NotImplementedError as error:
    print(error)  # Could not run 'aten::view' with arguments from the 'SparseCPU' backend
else:
    raise AssertionError("SAELens has mended this.")
