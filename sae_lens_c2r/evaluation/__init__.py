"""SAEBench's and SAELens's evaluations of any SAEs: the command `sae-lens-c2r evaluate`."""
