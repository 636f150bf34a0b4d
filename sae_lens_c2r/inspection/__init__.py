"""Measures of any SAE, and of one beside another: the command `sae-lens-c2r inspect`."""
