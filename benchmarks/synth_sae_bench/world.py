"""The benchmark's features, its samples on disk, and what an SAE made of the features."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from sae_lens import SAE
from sae_lens.synthetic import ActivationGenerator, SyntheticModel, SyntheticModelConfig
from torch import Tensor

from benchmarks.parallel import execute_all, read
from sae_lens_c2r.analysis.recovery import feature_recovery
from sae_lens_c2r.releases.files import find_release, read_release

BATCH = 4096
CHUNK = 65_536  # samples that are generated at a time, from a seed of their own
EVALUATION_SEED = 1_000_000


@dataclass(frozen=True)
class Size:
    """A size of the benchmark. The release of its name has the features and the SAEs' shape.

    Args:
        name: The release's name without `synth-sae-bench-`.
        ks: Sparsities; first that of the comparisons that have but one, the mean number of
            features present among the most frequent quarter.
        training_samples: Samples that SAEs are trained on.
        pool: Samples that are generated, once for all SAEs; they are seen again and again.
        evaluation: Samples that are kept to evaluate with.
        batch_size: Samples to a step: the published 1,024, divided as every other count is.
            With 1,024 the small sizes would have too few steps for their samples.
        lr: Learning rate, chosen for BatchTopK and everybody's: for 2k the one of the highest
            explained variance by `--choose-lr`, which 4k takes over, for 16k the published one.
        decay: Share of the steps over which it falls to a tenth at the end, likewise.
        autocast: Whether SAEs are trained in bf16 on a CPU, too, as published. On other
            devices they always are. From 1,024 latents on that is faster.
        methods: Names and strengths of the methods that are trained; `None` for all.
        other_training_samples: More or fewer samples, that some methods are trained on as
            well, at the first sparsity.
    """

    name: str
    ks: tuple[int, ...]
    training_samples: int
    pool: int
    evaluation: int = 65_536
    batch_size: int = 1024
    lr: float = 1e-3
    decay: float = 0.2
    autocast: bool = False
    methods: Mapping[str, Sequence[float]] | None = None
    other_training_samples: tuple[int, ...] = ()


SIZES = {
    size.name: size
    for size in (
        Size(
            "2k",
            (8, 5, 12),
            4_000_000,
            2_097_152,
            batch_size=128,
            lr=1e-3,
            decay=0.5,
            other_training_samples=(1_000_000,),
        ),
        Size(
            "4k",
            (14,),
            5_000_000,
            2_097_152,
            batch_size=256,
            decay=0.5,
            autocast=True,
            methods={
                "BatchTopK": (0.0,),
                "C2R": (2, 5, 20),
                "C2R, excess gate": (5, 20, 60),
                "OrtSAE": (0.1, 0.25, 1),
                "Matryoshka": (0.0,),
                "Matryoshka + C2R": (5,),
                "OrtSAE 0.25 + C2R": (5,),
            },
        ),
        Size("16k", (25, 15, 45), 200_000_000, 50_331_648, lr=3e-4, autocast=True),
    )
}


class World:
    """The features of one size, as they are kept on disk.

    Args:
        size: Which size.
        folder: Where features and samples are kept, and made where they are missing.
        device: Where SAEs are evaluated.
    """

    def __init__(self, size: Size, folder: Path, device: str = "cpu") -> None:
        self.size, self.folder = size, folder / size.name
        release = read_release(find_release(f"synth-sae-bench-{size.name}"))
        assert release.synthetic_model is not None
        self.d_in, self.d_sae = release.sae["d_in"], release.sae["d_sae"]
        if not (self.folder / "model").exists():
            partial = self.folder / f"model.{os.getpid()}"
            config = SyntheticModelConfig.from_dict(release.synthetic_model.config)
            SyntheticModel(config, device=device).save(partial)
            partial.rename(self.folder / "model")
        self.model = SyntheticModel.load_from_disk(self.folder / "model", device=device)
        self.pool = self.folder / f"pool-{size.pool}.npy"
        self.evaluation = self.folder / f"evaluation-{size.evaluation}.pt"

    def generate(self, processes: int) -> None:
        """Generate what is missing of the samples, to train on and to evaluate with.

        Args:
            processes: How many at a time.
        """
        if not self.pool.exists():
            shape = (self.size.pool, self.d_in)
            np.lib.format.open_memmap(self.pool, "w+", dtype="float32", shape=shape).flush()
        log = self.pool.with_suffix(".jsonl")
        done = {each["chunk"] for each in read(log)}
        missing = [
            (self.size, self.folder.parent, chunk)
            for chunk in range(self.size.pool // CHUNK)
            if chunk not in done
        ]
        execute_all(missing, _generate, log, processes=processes, what="Generating samples")
        if not self.evaluation.exists():
            torch.manual_seed(EVALUATION_SEED)
            samples = [
                self.model.activation_generator.sample(BATCH).to_dense().to_sparse().cpu()
                for _ in range(self.size.evaluation // BATCH)
            ]
            torch.save(samples, self.evaluation)

    def batches(self, seed: int, batch_size: int) -> Iterator[Tensor]:
        """The pool for ever, as `shuffled` has it."""
        return shuffled(self.pool, seed, batch_size)

    @torch.no_grad()
    def evaluate(self, sae: SAE[Any]) -> dict[str, float]:
        """SAELens's measures of an SAE of known features, and ours.

        Args:
            sae: The SAE, as anybody would load it.

        Returns:
            The measures by their names.
        """
        replay = _Replay(self.evaluation, self.model.device)
        self.model.activation_generator = cast(ActivationGenerator, replay)
        return feature_recovery(sae, self.model, samples=self.size.evaluation, batch_size=BATCH)


def shuffled(pool: Path, seed: int, batch_size: int) -> Iterator[Tensor]:
    """Kept samples for ever, in another order for every seed and pass.

    Args:
        pool: Where they are, one to a row.
        seed: Seed of the order.
        batch_size: Samples at a time.

    Yields:
        Samples, shape ``[batch_size, d_in]``.
    """
    samples = np.load(pool, mmap_mode="r")
    random = np.random.default_rng(seed)
    while True:
        order = random.permutation(len(samples))
        for start in range(0, len(samples) - batch_size + 1, batch_size):
            yield torch.from_numpy(samples[order[start : start + batch_size]])


class _Replay(torch.nn.Module):
    """Kept samples in place of SAELens's generator, the same ones for every SAE."""

    def __init__(self, path: Path, device: str) -> None:
        super().__init__()
        self._samples = torch.load(path)
        self._device, self._next = device, 0

    def sample(self, _batch_size: int) -> Tensor:
        batch = self._samples[self._next % len(self._samples)]
        self._next += 1
        return batch.to(self._device).to_dense()


def _generate(of: tuple[Size, Path, int]) -> dict[str, int]:
    size, folder, chunk = of
    torch.set_num_threads(1)
    world = World(size, folder)
    torch.manual_seed(chunk)
    pool = np.load(world.pool, mmap_mode="r+")
    for start in range(chunk * CHUNK, (chunk + 1) * CHUNK, BATCH):
        pool[start : start + BATCH] = world.model.sample(BATCH)
    pool.flush()
    return {"chunk": chunk}
