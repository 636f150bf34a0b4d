"""Times, memory and the machine that they were measured on, by one command line."""

import json
import os
import platform
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.profiler import ProfilerActivity, profile
from torch.utils.benchmark import Timer

from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r.reporting.tables import markdown_table

TIMINGS = yaml.safe_load(Path(__file__).with_name("timings.yaml").read_text(encoding="utf-8"))


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


def main(
    name: str, description: str | None, measure: Callable[[Namespace], list[Any]], **more: int
) -> None:
    """Measure as a command line says; keep the rows and their table, which is printed."""
    parser = ArgumentParser(description=description)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", choices=["cpu", "cuda"], default=device)
    parser.add_argument("--quick", action="store_true", help="only something small")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    for option, default in more.items():
        parser.add_argument(f"--{option}", type=int, default=default)
    options = parser.parse_args()
    options.size = "quick" if options.quick else options.device
    rows, columns = measure(options), TIMINGS[name]["columns"]
    table = markdown_table(
        list(columns), [[cell.format(**row) for cell in columns.values()] for row in rows]
    )
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
    command = " ".join([f"python -m benchmarks.{name}", *sys.argv[1:]])
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}-{options.size}"
    result = {"command": command, "environment": about, "rows": rows}
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    said = ", ".join(f"{key} {value}" for key, value in about.items())
    path.with_suffix(".md").write_text(f"{table}\n\nBy `{command}`: {said}.\n")
    print(table)
