"""Which SAEs are trained: methods, most of them as curves over their strength."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.synth_sae_bench.world import Size

Options = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Method:
    """A way to train SAEs, of which one coefficient is varied.

    Args:
        name: What it is called.
        architecture: SAELens's name, or that of a control in `controls.py`.
        coefficient: The field that is varied; `None` for a point.
        strengths: Its values, rising.
        options: Other fields of the config.
        everywhere: Strengths at which the other sparsities are trained as well.
    """

    name: str
    architecture: str
    coefficient: str | None = None
    strengths: tuple[float, ...] = (0.0,)
    options: Options = ()
    everywhere: tuple[float, ...] = ()


_EXCESS = (("c2r_gate", "excess"),)
_ORT = (("ort_coefficient", 0.25),)
_C2R = "c2r_coefficient"
_MATRYOSHKA = "matryoshka_batchtopk"

METHODS = {
    method.name: method
    for method in (
        Method("BatchTopK", "batchtopk", everywhere=(0.0,)),
        Method("C2R", "batchtopk_c2r", _C2R, (0.5, 2, 5, 10, 20, 50), everywhere=(2, 5, 20)),
        Method(
            "C2R, excess gate",
            "batchtopk_c2r",
            _C2R,
            (1, 5, 10, 20, 60, 200),
            _EXCESS,
            everywhere=(1, 5),
        ),
        Method(
            "OrtSAE",
            "ort",
            "ort_coefficient",
            (0.1, 0.25, 0.5, 1, 2, 4),
            everywhere=(0.25, 1, 4),
        ),
        Method(
            "OrtSAE, excess gate",
            "ort",
            "ort_coefficient",
            (0.5, 2),
            (("ort_gate", "excess"),),
        ),
        Method("Matryoshka", _MATRYOSHKA, everywhere=(0.0,)),
        Method("Matryoshka + C2R", f"{_MATRYOSHKA}_c2r", _C2R, (5, 20), everywhere=(5,)),
        Method(
            "Matryoshka + C2R, excess gate",
            f"{_MATRYOSHKA}_c2r",
            _C2R,
            (5,),
            _EXCESS,
        ),
        Method("OrtSAE 0.25 + C2R", "ort_c2r", _C2R, (5, 20), _ORT, everywhere=(5,)),
        Method("OrtSAE 0.25 + C2R, excess gate", "ort_c2r", _C2R, (5,), (*_ORT, *_EXCESS)),
        Method("C2R, directions only", "directions_only", _C2R, (5, 20)),
        Method("C2R, activations only", "activations_only", _C2R, (5, 20)),
        Method("JumpReLU", "jumprelu", "l0_coefficient", (1.4, 2)),
        Method("Standard", "standard", "l1_coefficient", (3, 4)),
        Method("Matching Pursuit", "matching_pursuit", options=(("decoder_init_norm", 1.0),)),
    )
}


def label(method: str, strength: float) -> str:
    """A method's name, with its strength where it has one."""
    return f"{method} {strength:g}" if METHODS[method].coefficient else method


# What is trained for longer or shorter as well.
BY_LENGTH = (
    ("BatchTopK", 0.0),
    ("C2R", 2),
    ("C2R", 5),
    ("C2R", 20),
    ("C2R, excess gate", 5),
    ("OrtSAE", 0.25),
    ("OrtSAE", 1),
    ("Matryoshka", 0.0),
    ("C2R, directions only", 5),
    ("C2R, directions only", 20),
    ("C2R, activations only", 5),
    ("C2R, activations only", 20),
)
# The order that the published table has them in, best first, at L0 25 (SAELens's docs).
PUBLISHED = {
    "f1": {
        "BatchTopK": 0.732,
        "Matryoshka": 0.879,
        "JumpReLU": 0.732,
        "Standard": 0.556,
        "Matching Pursuit": 0.446,
    },
    "mcc": {
        "BatchTopK": 0.757,
        "Matryoshka": 0.793,
        "JumpReLU": 0.753,
        "Standard": 0.604,
        "Matching Pursuit": 0.693,
    },
    "explained_variance": {
        "BatchTopK": 0.792,
        "Matryoshka": 0.779,
        "JumpReLU": 0.795,
        "Standard": 0.765,
        "Matching Pursuit": 0.835,
    },
}


LRS, DECAYS = (3e-4, 1e-3, 3e-3), (0.2, 0.5, 0.8)
CHOICE_SEED = 1000  # that nothing is reported of


@dataclass(frozen=True)
class Run:
    """One SAE.

    Args:
        size: Name of the benchmark's size.
        method: Name of the method.
        strength: Value of the method's coefficient.
        k: Sparsity.
        seed: Seed of the weights and of the samples' order.
        training_samples: Samples that it is trained on.
        lr: Learning rate.
        decay: Share of the steps over which it falls to a tenth at the end.
        batch_size: Samples to a step.
    """

    size: str
    method: str
    strength: float
    k: int
    seed: int
    training_samples: int
    lr: float = 1e-3
    decay: float = 0.2
    batch_size: int = 1024


def runs_of(size: Size, *, seeds: int) -> list[Run]:
    """Every SAE of one size, of the sparsity that most comparisons are made at first.

    Args:
        size: Which size.
        seeds: How many seeds.

    Returns:
        The SAEs; those of other training lengths come last.
    """
    return [
        *(
            _run(size, method.name, strength, k, seed)
            for k in size.ks
            for seed in range(seeds)
            for method in METHODS.values()
            for strength in _strengths(method, size, k)
        ),
        *(
            _run(replace(size, training_samples=samples), name, strength, size.ks[0], seed)
            for samples in size.other_training_samples
            for seed in range(seeds)
            for name, strength in BY_LENGTH
            if strength in _strengths(METHODS[name], size, size.ks[0])
        ),
    ]


def _strengths(method: Method, size: Size, k: int) -> Sequence[float]:
    if size.methods is not None:
        return size.methods.get(method.name, ())
    return method.strengths if k == size.ks[0] else method.everywhere


def runs_to_choose_lr(size: Size) -> list[Run]:
    """BatchTopK by learning rate and decay, at a seed that nothing else is reported of.

    Args:
        size: Which size.

    Returns:
        The SAEs.
    """
    return [
        _run(replace(size, lr=lr, decay=decay), "BatchTopK", 0.0, size.ks[0], CHOICE_SEED)
        for lr in LRS
        for decay in DECAYS
    ]


def _run(size: Size, method: str, strength: float, k: int, seed: int) -> Run:
    recipe = size.training_samples, size.lr, size.decay, size.batch_size
    return Run(size.name, method, strength, k, seed, *recipe)
