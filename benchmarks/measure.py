"""Times, memory and the machine that they were measured on."""

import json
import os
import platform
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Timer

from sae_lens_c2r._support.libraries import package_versions


def options_of(description: str | None) -> Namespace:
    """Read the command line."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--quick", action="store_true", help="only something small, on a CPU")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    options.size = "quick" if options.quick else options.device
    return options


def timer(call: Callable[[], object]) -> Timer:
    """Return a timer of a call, with as many threads as torch has, which waits for a GPU."""
    return Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())


def peak_bytes(call: Callable[[], object], device: str) -> int:
    """Return the most that tensors took during a call, beyond what was there before."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    assert profiled.profiler is not None
    events = profiled.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return max(accumulate((change for _, change in changes), initial=0))


def keep(options: Namespace, name: str, rows: list[Any], table: str) -> None:
    """Print a table, and keep it with its figures and what they depend on."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", info.read_text() if info.exists() else "")
    about = {
        "processor": named[1] if named else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **package_versions("torch", "sae-lens", "sae-lens-c2r"),
    }
    if options.device == "cuda":
        about |= {"gpu": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
    command = f"python -m benchmarks.{name} --device {options.device}"
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}-{options.size}"
    result = {"command": command, "environment": about, "rows": rows}
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    said = ", ".join(f"{key} {value}" for key, value in about.items())
    path.with_suffix(".md").write_text(f"{table}\n\nBy `{command}`: {said}.\n")
    print(table)
