"""SAEs on the Hugging Face Hub: loading one, and publishing some with a measured card."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sae_lens_c2r.hub.card import write_card as write_card
    from sae_lens_c2r.hub.repository import load as load
    from sae_lens_c2r.hub.rules import Target as Target
    from sae_lens_c2r.hub.submission import Submission as Submission
    from sae_lens_c2r.hub.uploading import show_proposal as show_proposal
    from sae_lens_c2r.hub.uploading import upload as upload

_MODULE_OF = {
    "Submission": "submission",
    "Target": "rules",
    "load": "repository",
    "show_proposal": "uploading",
    "upload": "uploading",
    "write_card": "card",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import what needs SAELens when it is asked for: it takes seconds."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
