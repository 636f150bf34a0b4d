"""What can be seen of any SAE: the command `sae-lens-c2r inspect`."""
