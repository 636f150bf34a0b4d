"""What the plugin adds to `import torch`: `python -m benchmarks.import_time`.

Each time is from fresh processes. The plugin's is taken after an `import torch` that did not
load it: the difference of two whole imports of torch is smaller than their noise.
"""

import os
import subprocess
import sys

from torch.utils.benchmark import Measurement, TaskSpec

REPEATS = 10
LOAD_PLUGIN = "from sae_lens_c2r.discovery import install; install()"
TIMED = "import time; {}; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def main() -> None:
    """Print how long imports take."""
    timed = {LOAD_PLUGIN: ("import torch", "0"), "import torch": ("pass", "1")}
    for statement, (before, autoload) in timed.items():
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
        command = [sys.executable, "-c", TIMED.format(before, statement)]
        times = [
            float(subprocess.check_output(command, env=environment)) for _ in range(REPEATS)
        ]
        print(Measurement(1, times, TaskSpec(statement, before)))


if __name__ == "__main__":
    main()
