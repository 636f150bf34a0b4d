"""SAEBench's sparse probing takes the sizes of its caller's dimensions for its own.

`train_sklearn_probe` has `beartype` without `jaxtyped`: a checked caller has bound `d_model`.
Proposal: `@jaxtyped(typechecker=beartype)`, as the functions around it have.
"""

import inspect

from sae_bench.evals.sparse_probing.probe_training import train_sklearn_probe

assert inspect.getsource(train_sklearn_probe).startswith("@beartype\n"), "It is mended."
