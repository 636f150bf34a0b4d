"""SAEBench's absorption writes a seed to its results, and nothing reads it.

Proposal: seed `random`, `numpy` and `torch` at the beginning of `run_eval`, as SAEBench's other
evaluations do.
"""

import inspect
from importlib import import_module
from pkgutil import iter_modules

from sae_bench.evals import absorption

for found in iter_modules(absorption.__path__):
    source = inspect.getsource(import_module(f"{absorption.__name__}.{found.name}"))
    code = [line for line in source.splitlines() if not line.startswith("#")]
    uses = [line for line in code if "seed(" in line]
    assert not uses, f"SAEBench has mended this: {uses}"
