"""What the plugin adds to `import torch`: `python -m benchmarks.import_time`.

Each time is from fresh processes. The plugin's is taken after an `import torch` that did not
load it: the difference of two whole imports of torch is smaller than their noise.
"""

import os
import subprocess
import sys
from argparse import Namespace
from statistics import median

from benchmarks.measure import main

LOAD_PLUGIN = "from sae_lens_c2r.discovery import install; install()"
TIMED = "import time; {}; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def measure(options: Namespace) -> list[dict[str, object]]:
    """Return how long imports take."""
    timed, rows = {LOAD_PLUGIN: ("import torch", "0"), "import torch": ("pass", "1")}, []
    count = 2 if options.quick else 10
    for statement, (before, autoload) in timed.items():
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
        command = [sys.executable, "-c", TIMED.format(before, statement)]
        outputs = [subprocess.check_output(command, env=environment) for _ in range(count)]
        ms = sorted(1e3 * float(output) for output in outputs)
        rows.append({"statement": statement, "median_ms": median(ms), "ms": ms})
    return rows


if __name__ == "__main__":
    main("import_time", __doc__, measure)
