"""SAEs on the Hugging Face Hub: loading one, and publishing some with a measured card."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sae_lens_c2r.hub.loading import load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    """Import what needs SAELens when it is asked for: it takes seconds."""
    if name == "load":
        from sae_lens_c2r.hub.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
