"""Which SAEs are trained, and how one is trained and measured."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import yaml
from matplotlib.figure import Figure
from sae_lens import SAE, SAETrainer, TrainingSAE
from sae_lens.config import SAETrainerConfig
from sae_lens.registry import get_sae_training_class
from torch import Tensor

from benchmarks.rows import Row as Row
from benchmarks.rows import execute_all, read
from sae_lens_c2r._support.files import fill_once
from sae_lens_c2r.analysis import composition

LRS, DECAYS = (3e-4, 1e-3, 3e-3), (0.2, 0.5, 0.8)
CHOICE_SEED = 1000  # of the SAEs that learning rate and decay are chosen by
PLAIN = "BatchTopK"
Strengths = Mapping[str, Sequence[float]]  # of methods, by their names


@dataclass(frozen=True)
class Method:
    """A way to train SAEs."""

    architecture: str = ""  # none where only rows are left
    coefficient: str | None = None  # the config's field that a strength is the value of
    options: Mapping[str, Any] = field(default_factory=dict)
    curve: bool = False  # whether figures show what comes of its strength


def read_yaml(path: Path) -> Any:
    """Read the data beside a file of Python."""
    return yaml.safe_load(path.with_suffix(".yaml").read_text(encoding="utf-8"))


_METHODS = read_yaml(Path(__file__).with_name("methods.yaml"))
METHODS = {name: Method(**about) for name, about in _METHODS.items()}
ROWS_ONLY = {name for name, method in METHODS.items() if not method.architecture}


@dataclass(frozen=True)
class Run:
    """One SAE. The fields are the key of its row."""

    world: str  # name of the world's file, and of what it is there: `synth_sae_bench/2k`
    method: str
    strength: float  # value of the method's coefficient, or 0
    k: float  # sparsity
    seed: int  # of the weights and of the samples' order
    world_seed: int  # of what is drawn of the world: features, frequencies, samples
    samples: int  # that it is trained on
    batch_size: int
    lr: float  # falls to a tenth at the end
    decay: float  # the share of the steps over which it falls

    @property
    def steps(self) -> int:
        """Steps of the training."""
        return self.samples // self.batch_size


KEY = [each.name for each in fields(Run)]


@dataclass(frozen=True)
class Size:
    """A set of SAEs: a world, methods with their strengths, sparsities and seeds."""

    world: str  # this and what has no comment as of `Run`
    ks: Sequence[float]  # first that of the comparisons that have but one
    samples: int
    batch_size: int
    methods: Strengths  # at the first sparsity
    everywhere: Strengths = field(default_factory=dict)  # at the other sparsities
    by_length: Strengths = field(default_factory=dict)  # on `other_samples`, more or fewer
    other_samples: Sequence[int] = ()
    lr: float = 1e-3
    decay: float = 0.2
    seeds: int = 5
    world_seed: int | None = None  # that of all seeds; `None` draws a world for each
    world_seeds_after: int = 0  # added to a seed for that of its world, to draw them apart
    pool: int = 0  # samples that are drawn, once for all SAEs
    evaluation: int = 65_536  # samples that are kept to evaluate with
    autocast: bool = False  # in bf16 on a CPU, too
    of_interest: bool = False  # whether differences that are too small have no verdict

    @property
    def name(self) -> str:
        """Name without the world's file."""
        return self.world.partition("/")[2]

    def runs(self) -> list[Run]:
        """Return every SAE; those of other training lengths come last."""
        main, *others = self.ks
        trained = {
            (main, self.samples): self.methods,
            **{(k, self.samples): self.everywhere for k in others},
            **{(main, samples): self.by_length for samples in self.other_samples},
        }
        return [
            self._run(method, strength, k, seed, samples)
            for (k, samples), methods in trained.items()
            for seed in range(self.seeds)
            for method, strengths in methods.items()
            for strength in strengths
        ]

    def runs_to_choose_lr(self) -> list[Run]:
        """Return BatchTopK by learning rate and decay, of a seed that is reported nowhere."""
        run = self._run(PLAIN, 0.0, self.ks[0], CHOICE_SEED, self.samples)
        return [replace(run, lr=lr, decay=decay) for lr in LRS for decay in DECAYS]

    def _run(self, method: str, strength: float, k: float, seed: int, samples: int) -> Run:
        own = self.world_seeds_after + seed
        world_seed = own if self.world_seed is None else self.world_seed
        about = (samples, self.batch_size, self.lr, self.decay)
        return Run(self.world, method, strength, k, seed, world_seed, *about)


class World(ABC):
    """What the SAE of a run is trained on, and measured by."""

    d_in: int
    d_sae: int
    sae_options: Row = MappingProxyType({})  # of a config, for architectures that have them
    trainer_options: Row = MappingProxyType({})  # of a config, beyond those that a run says
    pools: Sequence[Path] = ()  # on disk, whose samples are summed

    def __init__(self, run: Run, data: Path, device: str) -> None:
        self.run, self.data, self.device = run, data, device
        sizes = chain.from_iterable(world_module(run.world).SIZES.values())
        self.size = next(size for size in sizes if size.world == run.world)
        self.method = METHODS[run.method]
        self.folder = data / run.world.replace("/", "-")  # of what all SAEs share

    def prepare(self) -> None:
        """Draw what all SAEs share, unless that was done before."""
        fill_once(self.folder, self.draw_shared)

    def draw_shared(self, folder: Path) -> None:  # noqa: B027
        """Draw what all SAEs share into its folder, if there is anything."""

    def batches(self, seed: int, batch_size: int) -> Iterator[Tensor]:
        """Yield samples for ever; those of pools in another order for every seed and pass."""
        samples = [np.load(pool, mmap_mode="r") for pool in self.pools]
        random = np.random.default_rng(seed)
        while True:
            orders = [random.permutation(len(each)) for each in samples]
            for start in range(0, len(samples[-1]) - batch_size + 1, batch_size):
                chosen = (order[start : start + batch_size] for order in orders)
                parts = [each[rows] for each, rows in zip(samples, chosen, strict=True)]
                yield torch.from_numpy(sum(parts[1:], start=parts[0])).float()

    @abstractmethod
    def evaluate(self, sae: SAE[Any]) -> Row:
        """Measure an SAE, as anybody would load it."""

    def trained(self) -> SAE[Any]:
        """Load the SAE of the run, and train it first if need be."""
        name = "-".join(map(str, astuple(self.run))).replace("/", "-")
        saved = self.data / "saes" / name
        fill_once(saved, self.train)
        return SAE.load_from_disk(saved, device=self.device)

    def train(self, folder: Path) -> None:
        """Train the SAE of the run, and save it in the form in which anybody would load it."""
        torch.manual_seed(self.run.seed)
        fit(make_sae(self), self, self.run.seed).save_inference_model(folder)


@dataclass(frozen=True)
class Drawn:
    """What is drawn from rows."""

    tables: dict[str, dict[str, str]]  # in Markdown, by file and by heading
    figures: Callable[[], Mapping[str, Figure]] = dict  # by file


def world_module(world: str) -> Any:
    """Import the file of a world, or of a run's `world`."""
    return import_module(f"benchmarks.worlds.{world.partition('/')[0]}")


def read_sizes(path: Path) -> dict[str, list[Size]]:
    """Read the `SIZES` of a world's file from the YAML beside it."""
    sizes = read_yaml(path)["sizes"]
    return {name: [Size(f"{path.stem}/{name}", **about)] for name, about in sizes.items()}


def train_all(runs: Sequence[Run], path: Path, *, data: Path, device: str, jobs: int) -> None:
    """Train and measure the SAEs that have no row yet, and append their rows to a file."""
    done = {tuple(row[name] for name in KEY) for row in read(path)}
    todo = [run for run in runs if astuple(run) not in done]
    torch.set_num_threads(jobs)
    for run in {(run.world, run.world_seed): run for run in todo}.values():
        world_module(run.world).open_world(run, data, device).prepare()
    todo.sort(key=lambda run: (run.samples, run.seed))  # Every comparison soon has an answer.
    execute_all([(run, data, device) for run in todo], execute, path, jobs=jobs)


def execute(task: tuple[Run, Path, str]) -> Row:
    """Train one SAE, unless it is saved already, and return its row."""
    run, _, device = task
    if device == "cpu":
        torch.set_num_threads(1)
    world = world_module(run.world).open_world(*task)
    sae = world.trained()
    read = {"encoder_composition": composition(sae.W_enc.T)} if hasattr(sae, "W_enc") else {}
    return {**asdict(run), **read, **world.evaluate(sae)}


def make_sae(world: World) -> TrainingSAE[Any]:
    """Make the SAE of a world's run, untrained."""
    run, method = world.run, world.method
    sae_class, config_class = get_sae_training_class(method.architecture)
    options: Row = {
        "k": run.k,
        "max_iterations": run.k,
        "matryoshka_widths": [world.d_sae // part for part in (32, 8, 2, 1)],
        **world.sae_options,
    }
    known = config_class.__dataclass_fields__
    options = {name: value for name, value in options.items() if name in known}
    if method.coefficient is not None:
        options.setdefault(method.coefficient, run.strength)
    shape = {"d_in": world.d_in, "d_sae": world.d_sae, "device": world.device}
    return sae_class(config_class(**{**shape, **options, **method.options}))


def fit(sae: TrainingSAE[Any], world: World, seed: int) -> TrainingSAE[Any]:
    """Train an SAE as the world's run says, on samples in the order of a seed."""
    run, device = world.run, world.device
    config = SAETrainerConfig(
        total_training_samples=run.steps * run.batch_size,
        train_batch_size_samples=run.batch_size,
        device=device,
        lr=run.lr,
        lr_end=run.lr / 10,
        lr_decay_steps=int(run.decay * run.steps),
        autocast=world.size.autocast or device != "cpu",
        feature_sampling_window=10**9,  # steps after which the counts of firing begin anew
        **world.trainer_options,
    )
    batches = (batch.to(device) for batch in world.batches(seed, run.batch_size))
    return SAETrainer(cfg=config, sae=sae, data_provider=batches).fit()
