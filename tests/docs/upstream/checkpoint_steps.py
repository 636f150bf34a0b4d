"""SAELens writes a checkpoint before it counts the step that it has just done.

Proposal: in `fit`, count the step before `_checkpoint_if_needed`.
"""

import tempfile
from pathlib import Path

import torch
from sae_lens import LoggingConfig, TrainingSAE
from sae_lens.config import SAETrainerConfig
from sae_lens.training.sae_trainer import SAETrainer

folder = Path(tempfile.mkdtemp())
sae = TrainingSAE.from_dict({"architecture": "topk", "d_in": 8, "d_sae": 16, "k": 2})
config = SAETrainerConfig(
    total_training_samples=40,
    train_batch_size_samples=4,
    lr_end=3e-5,
    n_checkpoints=1,
    checkpoint_path=str(folder),
    logger=LoggingConfig(log_to_wandb=False),
)
SAETrainer(config, sae, iter(torch.randn(10, 4, 8))).fit()

[checkpoint] = folder.glob("*/trainer_state.pt")
state = torch.load(checkpoint)
done = state["n_training_samples"] // 4
assert state["n_training_steps"] == done - 1, "SAELens has mended this."
