"""The command `sae-lens-c2r`: its commands, by what they do."""

from sae_lens_c2r.cli.app import main

__all__ = ["main"]
