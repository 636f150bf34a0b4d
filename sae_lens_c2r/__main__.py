"""`python -m sae_lens_c2r` is the command `sae-lens-c2r`."""

from sae_lens_c2r.cli import main

main()
