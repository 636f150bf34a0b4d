"""How stale reused neighbours get: `python -m benchmarks.staleness`.

BatchTopK with C2R is trained on a hierarchy of known features, with neighbours that serve 1
to 16 penalties. Staleness is the mean cosine that they had lost to new ones when they were
replaced.
"""

import os
import statistics
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from sae_lens import SAETrainer

from benchmarks.measure import write_results
from benchmarks.trainer import trainer_config
from benchmarks.transfer.data import Hierarchy
from benchmarks.transfer.rules import Setting
from sae_lens_c2r import BatchTopKC2RTrainingSAE, BatchTopKC2RTrainingSAEConfig
from sae_lens_c2r.analysis import composition

SETTING = Setting("hierarchy", batch_size=512, d_sae=512, d_in=96, scale=1.0)
SEARCH_INTERVALS = (1, 2, 4, 8, 16)


def measure(search_interval: int) -> dict[str, float]:
    """Train one SAE; what its reuse of neighbours cost and changed."""
    data = Hierarchy(SETTING, seed=0)
    torch.manual_seed(0)
    sae = BatchTopKC2RTrainingSAE(
        BatchTopKC2RTrainingSAEConfig(
            d_in=SETTING.d_in,
            d_sae=SETTING.d_sae,
            k=data.k,
            c2r_search_interval=search_interval,
        )
    )
    config = trainer_config(
        steps=data.steps,
        batch_size=SETTING.batch_size,
        lr=data.learning_rate,
        lr_warm_up_steps=data.steps // 12,
        lr_decay_steps=data.steps // 3,
    )
    trainer: SAETrainer[Any, Any] = SAETrainer(
        cfg=config, sae=sae, data_provider=data.batches()
    )
    staleness, residual, total = [], [], []
    for batch, step in zip(data.batches(), range(data.steps), strict=False):
        output = trainer.step(batch)
        trainer.n_training_steps += 1
        if isinstance(lost := output.metrics.get("c2r_neighbor_staleness"), torch.Tensor):
            staleness.append(lost.item())
        if step >= 0.9 * data.steps:
            residual.append((output.sae_in - output.sae_out).square().sum().item())
            total.append((batch - batch.mean(dim=0)).square().sum().item())
    return {
        "search_interval": search_interval,
        "staleness": statistics.mean(staleness) if staleness else 0.0,
        "composition": composition(sae.W_dec),
        "explained_variance": 1 - sum(residual) / sum(total),
    }


def table(rows: list[dict[str, float]]) -> str:
    """In Markdown."""
    lines = [
        "| penalties that a search serves | staleness | composition | explained variance |",
        "|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['search_interval']} | {row['staleness']:.4f} | {row['composition']:.3f} | "
        f"{row['explained_variance']:.3f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, write it."""
    ArgumentParser(description=__doc__).parse_args()
    os.environ["TQDM_DISABLE"] = "1"  # SAELens's bar for each SAE
    rows = [measure(interval) for interval in track(SEARCH_INTERVALS)]
    command = "python -m benchmarks.staleness"
    write_results(Path("benchmarks/results"), "staleness", command, "cpu", rows, table(rows))


if __name__ == "__main__":
    main()
