"""C2R, Cross-sample Consistency Regularization, for SAELens.

Installing this package is all it takes: `architecture="batchtopk_c2r"` then works wherever
SAELens takes an architecture (see `sae_lens_c2r.discovery`). The names below are for those
who want the pieces; each loads what it needs when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sae_lens_c2r import discovery

if TYPE_CHECKING:
    from sae_lens_c2r.analysis import composition as composition
    from sae_lens_c2r.architectures import (
        AbsTopKC2RTrainingSAE as AbsTopKC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        AbsTopKC2RTrainingSAEConfig as AbsTopKC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        BatchTopKC2RTrainingSAE as BatchTopKC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        BatchTopKC2RTrainingSAEConfig as BatchTopKC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        GatedC2RTrainingSAE as GatedC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        GatedC2RTrainingSAEConfig as GatedC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        JumpReLUC2RTrainingSAE as JumpReLUC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        JumpReLUC2RTrainingSAEConfig as JumpReLUC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        MatchingPursuitC2RTrainingSAE as MatchingPursuitC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        MatchingPursuitC2RTrainingSAEConfig as MatchingPursuitC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        MatryoshkaBatchTopKC2RTrainingSAE as MatryoshkaBatchTopKC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        MatryoshkaBatchTopKC2RTrainingSAEConfig as MatryoshkaBatchTopKC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        OrtC2RTrainingSAE as OrtC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        OrtC2RTrainingSAEConfig as OrtC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        OrtTrainingSAE as OrtTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        OrtTrainingSAEConfig as OrtTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        StandardC2RTrainingSAE as StandardC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        StandardC2RTrainingSAEConfig as StandardC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        TopKC2RTrainingSAE as TopKC2RTrainingSAE,
    )
    from sae_lens_c2r.architectures import (
        TopKC2RTrainingSAEConfig as TopKC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.architectures import (
        with_c2r as with_c2r,
    )
    from sae_lens_c2r.discovery import register as register
    from sae_lens_c2r.penalties import c2r_penalty as c2r_penalty
    from sae_lens_c2r.penalties import nearest_neighbors as nearest_neighbors
    from sae_lens_c2r.penalties import orthogonality_penalty as orthogonality_penalty

__version__ = "0.1.0"

_NAMES = {
    "analysis": ["composition"],
    "architectures": [
        "AbsTopKC2RTrainingSAE",
        "AbsTopKC2RTrainingSAEConfig",
        "BatchTopKC2RTrainingSAE",
        "BatchTopKC2RTrainingSAEConfig",
        "GatedC2RTrainingSAE",
        "GatedC2RTrainingSAEConfig",
        "JumpReLUC2RTrainingSAE",
        "JumpReLUC2RTrainingSAEConfig",
        "MatchingPursuitC2RTrainingSAE",
        "MatchingPursuitC2RTrainingSAEConfig",
        "MatryoshkaBatchTopKC2RTrainingSAE",
        "MatryoshkaBatchTopKC2RTrainingSAEConfig",
        "OrtC2RTrainingSAE",
        "OrtC2RTrainingSAEConfig",
        "OrtTrainingSAE",
        "OrtTrainingSAEConfig",
        "StandardC2RTrainingSAE",
        "StandardC2RTrainingSAEConfig",
        "TopKC2RTrainingSAE",
        "TopKC2RTrainingSAEConfig",
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
