"""SAEBench's sparse probing takes the sizes of its caller's dimensions for its own.

`train_sklearn_probe` has `beartype` without `jaxtyped`, so that a checked caller with more
latents has bound `d_model` already. Newer versions of beartype find them in dictionaries, too.
Proposal: `@jaxtyped(typechecker=beartype)`, as the functions around it have.
"""

import inspect

from sae_bench.evals.sparse_probing.probe_training import train_sklearn_probe

first_line, *_ = inspect.getsource(train_sklearn_probe).splitlines()
assert first_line == "@beartype", "SAEBench has mended this."
