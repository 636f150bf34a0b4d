"""Known features in a real model's activations: planted there, and counted in SAEs.

`python -m benchmarks.planted` adds the features of a forest of parents and children to the
activations of the demo's transformer. What SAEs make of the planted ones is known exactly,
amid whatever the transformer has in superposition.
"""
