"""SynthSAEBench (arXiv:2602.14687): known features that nobody here chose."""

from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.progress import track
from sae_lens import SAE
from sae_lens.synthetic import SyntheticModel, SyntheticModelConfig

from benchmarks.compare import METRICS, Interval, interpolate
from benchmarks.experiment import Drawn, Row, Run, Size, World, read_sizes, read_yaml
from benchmarks.report import draw_sizes, of_full_length
from sae_lens_c2r.analysis.recovery import feature_recovery
from sae_lens_c2r.reporting.tables import markdown_table

BATCH = 4096
CHUNK = 65_536  # samples that are generated from a seed of their own
EVALUATION_SEED = 1_000_000
KEPT_WORLD = 42
SIZES = read_sizes(Path(__file__))
DATA = read_yaml(Path(__file__))


def model_config(divisor: int) -> dict[str, Any]:
    """Return the published model with its counts divided by a number."""
    model, hierarchy = DATA["model"], DATA["model"]["hierarchy"]
    roots = hierarchy["total_root_nodes"] // divisor
    counts = {name: model[name] // divisor for name in ("num_features", "hidden_dim")}
    return {**model, **counts, "hierarchy": {**hierarchy, "total_root_nodes": roots}}


class SynthSAEBench(World):
    """The features of one size, as they are kept on disk with their samples."""

    def __init__(self, run: Run, data: Path, device: str) -> None:
        super().__init__(run, data, device)
        published = self.size.name if self.size.name in ("4k", "16k") else "2k"
        self.config = {**model_config(DATA["divided_by"][published]), "seed": run.world_seed}
        self.d_in = self.config["hidden_dim"]
        self.d_sae = DATA["d_sae"] // DATA["divided_by"][published]
        name = f"{published}-{run.world_seed}-{self.size.pool}-{self.size.evaluation}"
        self.folder = data / f"synth-sae-bench-{name}"
        self.pools = [self.folder / "pool.npy"]
        # Worlds are apart in their samples, too. Those of the kept one begin at 0.
        self.first_seed = (run.world_seed - KEPT_WORLD) * 2 * EVALUATION_SEED

    def draw_shared(self, folder: Path) -> None:
        # On a CPU, as SAELens draws other features on other devices.
        config = SyntheticModelConfig.from_dict(self.config)
        SyntheticModel(config, device="cpu").save(folder / "model")
        model = SyntheticModel.load_from_disk(folder / "model", device=self.device)
        shape = (self.size.pool, self.d_in)
        pool = np.lib.format.open_memmap(folder / "pool.npy", "w+", "float32", shape)
        for start in track(range(0, len(pool), BATCH), "Generating samples"):
            if start % CHUNK == 0:
                torch.manual_seed(self.first_seed + start // CHUNK)
            pool[start : start + BATCH] = model.sample(BATCH).cpu()
        torch.manual_seed(self.first_seed + EVALUATION_SEED)
        n, draw_samples = self.size.evaluation // BATCH, model.activation_generator.sample
        samples = [draw_samples(BATCH).to_dense().to_sparse().cpu() for _ in range(n)]
        torch.save(samples, folder / "evaluation.pt")

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> Row:
        model = SyntheticModel.load_from_disk(self.folder / "model", device=self.device)
        kept = cycle(torch.load(self.folder / "evaluation.pt"))
        # The same samples for every SAE, in place of fresh ones.
        model.activation_generator.sample = lambda _: next(kept).to(self.device).to_dense()  # type: ignore
        return feature_recovery(sae, model, samples=self.size.evaluation, batch_size=BATCH)


def published_table(rows: pd.DataFrame, size: Size) -> str:
    """Return SAELens's architectures in the published order, on their curves where L0 is k."""
    k, table, metrics = size.ks[0], [], ["l0", *DATA["published"]]
    for name in DATA["published"]["f1"]:
        ours, found = rows[(rows.method == name) & (rows.k == k)].sort_values("strength"), {}
        for seed, here in ours.groupby("seed"):
            values = here[metrics].to_numpy()
            points = list(zip(here.l0, values, strict=True))
            found[seed] = interpolate(points, k) if len(points) > 1 else values[0]
        if found:
            at_k = pd.DataFrame(found, index=metrics).T
            cells = [str(at_k.l0.notna().sum()), str(Interval.of(at_k.l0))]
            for metric, published in DATA["published"].items():
                cells += [f"{published[name]:.3f}", str(Interval.of(at_k[metric]))]
            table.append([name, *cells])
    pairs = product(DATA["published"], (", published", " here"))
    head = (METRICS[metric].label + of for metric, of in pairs)
    return markdown_table(["", "seeds", "L0 here", *head], table)


def draw(rows: pd.DataFrame) -> Drawn:
    drawn = draw_sizes(rows, SIZES)
    for name, tables in drawn.tables.items():
        [size] = SIZES[name]
        tables["published"] = published_table(of_full_length(rows, size), size)
    return drawn


open_world = SynthSAEBench
