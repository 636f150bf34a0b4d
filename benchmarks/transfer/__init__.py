"""Does lambda transfer? The experiment behind `c2r_scaling="transfer"`.

`python -m benchmarks.transfer` trains BatchTopK with C2R on ground-truth hierarchies and on
MiniLM's activations, over batch sizes, widths, dimensions and scales of the inputs, for a
sweep of lambda, and draws what comes of it against the lambda that the rule gives, that the
rule without each of its factors gives, and the literal one.

A run knows only its literal coefficient. Rules differ in what they call it: so every run
serves all of them, each at another place of its axis.
"""
