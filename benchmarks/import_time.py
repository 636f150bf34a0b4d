"""What the plugin adds to `import torch`: `python -m benchmarks.import_time`.

Each figure is from fresh processes. The plugin's own time is taken inside a process, right
after an `import torch` that did not load it: the difference of two whole imports of torch,
shown for comparison, is smaller than their noise.
"""

import os
import statistics
import subprocess
import sys
from argparse import ArgumentParser

REPEATS = 10

IMPORT_TORCH = "import torch"
LOAD_PLUGIN = "from sae_lens_c2r.discovery import install; install()"
TIMED = """
import time
{before}
start = time.perf_counter()
{timed}
print(1000 * (time.perf_counter() - start))
"""


def milliseconds(timed: str, *, before: str = "", autoload: bool = False) -> list[float]:
    """Times of `timed` after `before`, in fresh processes."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload))}
    command = [sys.executable, "-c", TIMED.format(before=before, timed=timed)]
    return [
        float(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
        for _ in range(REPEATS)
    ]


def main() -> None:
    """Print the table."""
    ArgumentParser(description=__doc__).parse_args()
    rows = {
        "the plugin": milliseconds(LOAD_PLUGIN, before=IMPORT_TORCH),
        "import torch without it": milliseconds(IMPORT_TORCH),
        "import torch with it": milliseconds(IMPORT_TORCH, autoload=True),
    }
    print(f"{'milliseconds':<26}{'median':>10}{'least':>10}{'most':>10}")
    for name, times in rows.items():
        print(
            f"{name:<26}{statistics.median(times):>10.1f}{min(times):>10.1f}{max(times):>10.1f}"
        )


if __name__ == "__main__":
    main()
