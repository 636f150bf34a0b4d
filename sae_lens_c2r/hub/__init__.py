"""SAEs on the Hugging Face Hub: loading one, and what publishing needs before it sends."""

from sae_lens_c2r.hub.load import load

__all__ = ["load"]
