"""SynthSAEBench (arXiv:2602.14687), at its own size and at sizes that two cores finish.

`python -m benchmarks.synth_sae_bench --size 2k` trains every method at several strengths and
sparsities, five seeds each, on features that nobody here chose, and compares them at equal
explained variance and at equal composition, some of them at two training lengths.
"""
