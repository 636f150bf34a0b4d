"""Times, memory and the machine that they were measured on, by one command line."""

import json
import os
import platform
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.benchmark import Timer

from benchmarks.experiment import read_yaml
from sae_lens_c2r._support.libraries import package_versions
from sae_lens_c2r.reporting.tables import markdown_table

GATHERS, SCATTERS = {"index", "index_select", "gather"}, {"index_put", "index_put_"}
WAITS = {"_local_scalar_dense", "is_nonzero", "item", "nonzero"}
TIMINGS = read_yaml(Path(__file__).with_name("timings.yaml"))


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


class Calls(TorchDispatchMode):
    """What is asked of a device, which may be `meta`: calls, bytes they move, and waits."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.number, self.bytes, self.waits = 0, 0, list[str]()

    def __torch_dispatch__(self, func: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result, name = func(*args, **kwargs), func.overloadpacket.__name__
        if name in WAITS:
            self.waits.append(name)
        aliases = [each.alias_info for each in func._schema.returns]
        is_view = any(alias is not None and not alias.is_write for alias in aliases)
        if not is_view and not name.startswith(("empty", "new_empty")):
            self.number += 1
            if name in GATHERS:  # not the whole of what they gather from
                self.bytes += 2 * _bytes_of(result)
            elif name == "index_add_":
                self.bytes += 3 * _bytes_of(args[3])
            elif name in SCATTERS:
                self.bytes += 2 * _bytes_of(args[2])
            else:  # what is changed in place is among the arguments and the result
                self.bytes += _bytes_of([args, kwargs, result])
        return result


def _bytes_of(tree: Any) -> int:
    tensors = (each for each in tree_leaves(tree) if isinstance(each, Tensor))
    return sum(each.numel() * each.element_size() for each in tensors)


def environment(device: str) -> dict[str, Any]:
    """Name the machine and the versions."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.+)", info.read_text() if info.exists() else "")
    about = {
        "processor": named[1] if named else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **package_versions("torch", "sae-lens", "sae-lens-c2r"),
    }
    if device == "cuda":
        about |= {"gpu": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
    return about


def main(
    name: str,
    description: str | None,
    measure: Callable[[Namespace], list[Any]],
    devices: Sequence[str] = ("cpu", "cuda"),
    arguments: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),  # of this one alone
) -> None:
    """Measure as a command line says; keep the rows and their table, which is printed."""
    parser = ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    device = "cuda" if torch.cuda.is_available() and "cuda" in devices else "cpu"
    parser.add_argument("--device", choices=devices, default=device)
    parser.add_argument("--quick", action="store_true", help="only something small")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    for argument, settings in arguments.items():
        parser.add_argument(argument, **settings)
    options = parser.parse_args()
    options.size = "quick" if options.quick else options.device
    rows, kind = measure(options), "calls" if options.device == "meta" else "columns"
    columns = TIMINGS[name][kind]
    table = markdown_table(
        list(columns), [[cell.format(**row) for cell in columns.values()] for row in rows]
    )
    about = environment(options.device)
    command = " ".join([parser.prog, *sys.argv[1:]])
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}-{options.size}"
    result = {"command": command, "environment": about, "rows": rows}
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    said = ", ".join(f"{key} {value}" for key, value in about.items())
    path.with_suffix(".md").write_text(f"{table}\n\nBy `{command}`: {said}.\n")
    print(table)
