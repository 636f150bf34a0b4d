"""Times, memory and the machine that they were measured on."""

import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from sae_lens_c2r._support.libraries import package_versions


def environment(device: str) -> dict[str, str | int]:
    """What a figure depends on, to be kept beside it."""
    found: dict[str, str | int] = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **package_versions("torch", "sae-lens", "sae-lens-c2r"),
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def synchronize(device: str) -> None:
    """Wait for a GPU to have done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(*stages: Callable[[], object], device: str) -> list[float]:
    """Time stages that follow each other, after a round that warms up.

    What takes a second has been warm for most of it: it is repeated once, and not at all if
    it takes five.

    Args:
        stages: What to call.
        device: Where they work.

    Returns:
        The shortest time of each.
    """

    def one_round() -> list[float]:
        times = []
        for stage in stages:
            synchronize(device)
            start = time.perf_counter()
            stage()
            synchronize(device)
            times.append(time.perf_counter() - start)
        return times

    first = one_round()
    if sum(first) > 5:
        return first
    rounds = [one_round() for _ in range(5 if sum(first) < 1 else 1)]
    return [min(times) for times in zip(*rounds, strict=True)]


def peak_bytes(function: Callable[[], object], device: str) -> int:
    """The most that tensors took at once during a call, beyond what was there before."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        function()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        function()
    assert profiled.profiler is not None
    events = profiled.profiler.kineto_results.events()
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    peak = allocated = 0
    for _, change in sorted(changes):
        allocated += change
        peak = max(peak, allocated)
    return peak


def matrix_product_peak(dtype: torch.dtype, device: str) -> float:
    """Operations in a second of a large square matrix product: what the hardware can do."""
    size = 8192 if device == "cuda" else 4096
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / seconds(lambda: left @ right, device=device)[0]


def write_results(
    folder: Path, name: str, command: str, device: str, rows: list[Any], table: str, **more: Any
) -> None:
    """Print a table, and keep it with its figures and what they depend on.

    Args:
        folder: Where to write `name`.json and `name`.md.
        name: Name of the files.
        command: What measured it.
        device: Where.
        rows: The figures.
        table: The same to look at, in Markdown.
        more: Anything else to keep.
    """
    about = environment(device)
    result = {"command": command, "environment": about, **more, "rows": rows}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    said = ", ".join(f"{key} {value}" for key, value in about.items())
    (folder / f"{name}.md").write_text(f"{table}\n\nBy `{command}`: {said}.\n")
    print(table)
