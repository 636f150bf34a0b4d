"""C2R, Cross-sample Consistency Regularization, for SAELens.

Installing this package is all it takes: `architecture="batchtopk_c2r"` then works wherever
SAELens takes an architecture (see `sae_lens_c2r.discovery`). The names below are for use in
Python; each loads what it needs when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sae_lens_c2r import discovery

if TYPE_CHECKING:
    from sae_lens_c2r.analysis import chance_composition as chance_composition
    from sae_lens_c2r.analysis import composition as composition
    from sae_lens_c2r.analysis import hierarchy_absorption as hierarchy_absorption
    from sae_lens_c2r.architectures import *  # noqa: F403
    from sae_lens_c2r.discovery import register as register
    from sae_lens_c2r.penalties import c2r_penalty as c2r_penalty
    from sae_lens_c2r.penalties import nearest_neighbors as nearest_neighbors
    from sae_lens_c2r.penalties import orthogonality_penalty as orthogonality_penalty

__version__ = "0.1.0"

_ARCHITECTURES = (  # each has an SAE class and a config class
    *("AbsTopKC2R", "BatchTopKC2R", "GatedC2R", "JumpReLUC2R", "MatchingPursuitC2R"),
    *("MatryoshkaBatchTopKC2R", "OrtC2R", "Ort", "StandardC2R", "TopKC2R"),
)
_NAMES = {
    "analysis": ["chance_composition", "composition", "hierarchy_absorption"],
    "architectures": [
        *(f"{name}TrainingSAE" for name in _ARCHITECTURES),
        *(f"{name}TrainingSAEConfig" for name in _ARCHITECTURES),
        "with_c2r",
    ],
    "discovery": ["register"],
    "penalties": ["c2r_penalty", "nearest_neighbors", "orthogonality_penalty"],
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


discovery.install()
