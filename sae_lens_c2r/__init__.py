"""C2R, Cross-sample Consistency Regularization, for SAELens.

Installing this package is all it takes: `architecture="batchtopk_c2r"` then works wherever
SAELens takes an architecture (see `sae_lens_c2r.discovery`). The names below are for those
who want the pieces; each loads what it needs when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sae_lens_c2r import discovery

if TYPE_CHECKING:
    from sae_lens_c2r.analysis import composition
    from sae_lens_c2r.architectures import (
        BatchTopKC2RTrainingSAE,
        BatchTopKC2RTrainingSAEConfig,
    )
    from sae_lens_c2r.discovery import register
    from sae_lens_c2r.penalties import c2r_penalty, nearest_neighbors

__version__ = "0.1.0"

__all__ = [
    "BatchTopKC2RTrainingSAE",
    "BatchTopKC2RTrainingSAEConfig",
    "c2r_penalty",
    "composition",
    "nearest_neighbors",
    "register",
]

_MODULE_OF = {
    "BatchTopKC2RTrainingSAE": "architectures",
    "BatchTopKC2RTrainingSAEConfig": "architectures",
    "c2r_penalty": "penalties",
    "composition": "analysis",
    "nearest_neighbors": "penalties",
    "register": "discovery",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


discovery.install()
