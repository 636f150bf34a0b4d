"""The command `sae-lens-c2r`: a file for each of its commands."""

from sae_lens_c2r.cli.app import main

__all__ = ["main"]
