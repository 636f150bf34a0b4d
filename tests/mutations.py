"""Would the tests notice? `python -m tests.mutations` plants faults and runs them.

Every fault is put into a copy of the package by itself. A fault that no test catches is a
law that nobody checks: the command then fails.
"""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
PENALTY = "penalties/c2r.py"
NEIGHBORS = "penalties/neighbors.py"
COSINES = "penalties/cosines.py"
NORMS = "penalties/norms.py"
PROCESSES = "penalties/processes.py"
SCALING = "penalties/scaling.py"
MIXIN = "architectures/c2r.py"
PERIODIC = "architectures/periodic.py"
SEARCH = "architectures/search.py"


@dataclass(frozen=True)
class Fault:
    """A deliberate fault: in which file, and what takes the place of what."""

    name: str
    file: str
    old: str
    new: str


GATE = "gates = cosines.clamp(0, 1).square()"
FAULTS = [
    Fault("gate not squared", PENALTY, GATE, GATE.removesuffix(".square()")),
    Fault("ReLU dropped", PENALTY, GATE, GATE.replace(".clamp(0, 1)", "")),
    Fault(
        "gate not differentiated", PENALTY, GATE, GATE.replace("cosines", "cosines.detach()")
    ),
    Fault("neighbour's norm left out", PENALTY, "norms + norms[neighbors]", "norms + norms"),
    Fault("sum instead of mean", PENALTY, "exponent)).mean()", "exponent)).sum()"),
    Fault("exponent ignored", PENALTY, "if exponent == 1:", "if exponent != 0.5:"),
    Fault(
        "norm over the wrong axis", NORMS, "square().sum(dim=0)", "square().sum(dim=1).sum()"
    ),
    Fault("squared norm", NORMS, "return energy.sqrt()", "return energy"),
    Fault("last tile of samples only", NORMS, "energy += ", "energy = "),
    Fault(
        "uncoalesced entries squared apart",
        NORMS,
        "_batch_norms_of_sparse(feature_acts.coalesce()",
        "_batch_norms_of_sparse(feature_acts._coalesced_(True)",
    ),
    Fault("infinite gradient at 0", PENALTY, "torch.where(positive, base, 1.0) **", "base **"),
    Fault("a pair with itself", PENALTY, "terms.masked_fill(itself, 0.0).sum()", "terms.sum()"),
    Fault(
        "tiles kept for backward",
        PENALTY,
        "checkpoint(\n                _tile_of_pairs,",
        "(lambda f, *x, **_: f(*x))(\n                _tile_of_pairs,",
    ),
    Fault("self not excluded", NEIGHBORS, "cosines.fill_diagonal_(-torch.inf)", "pass"),
    Fault("farthest neighbour", NEIGHBORS, "*cosines.max(dim=1)", "*cosines.neg().max(dim=1)"),
    Fault("columns of tiles forgotten", NEIGHBORS, "if i < j:", "if False:"),
    Fault("place of a tile forgotten", NEIGHBORS, "at + offset", "at"),
    Fault("last tile of a chunk only", NEIGHBORS, "~(values <= highest)", "values > -2"),
    Fault("NaN hidden", NEIGHBORS, "~(values <= highest)", "values > highest"),
    Fault(
        "group of a column forgotten", NEIGHBORS, "group * ROWS_PER_GROUP + within", "within"
    ),
    Fault(
        "neighbour differentiated",
        NEIGHBORS,
        "W_dec.detach(), chunk_size or len(W_dec)",
        "W_dec, chunk_size or len(W_dec)",
    ),
    Fault("always the same chunks", NEIGHBORS, 'f"{seed}:{step}"', 'f"{seed}"'),
    Fault("global random state drawn from", NEIGHBORS, "d_sae, generator=generator)", "d_sae)"),
    Fault(
        "lone latents penalized",
        COSINES,
        "torch.where(alone(neighbors), 0.0",
        "torch.where(alone(neighbors), 1.0",
    ),
    Fault("decoder not normalized", COSINES, "(unit_rows(W_dec[rows]) *", "(W_dec[rows] *"),
    Fault(
        "neighbour's row not differentiated",
        COSINES,
        "weights / right_lengths * (left",
        "0 * weights / right_lengths * (left",
    ),
    Fault(
        "gradient of the first tile only",
        COSINES,
        "for rows in _tiles(W_dec):",
        "for rows in _tiles(W_dec)[:1]:",
    ),
    Fault("tiles' gradients overwritten", COSINES, "in_rows[rows] +=", "in_rows[rows] ="),
    Fault("all pairs under autocast", PENALTY, "with full_precision(W_dec):", "if True:"),
    Fault(
        "range of half precision left by all pairs",
        "penalties/precision.py",
        "wide.register_hook(",
        "str(",
    ),
    Fault("length not differentiated", COSINES, "(right - cosines * left)", "right"),
    Fault(
        "range of half precision left", COSINES, "within_range(in_rows, W_dec.dtype)", "in_rows"
    ),
    Fault(
        "orthogonality not squared", "penalties/orthogonality.py", ".square().mean()", ".mean()"
    ),
    Fault("scaling inverted", SCALING, "* papers_chance / chance", "* chance / papers_chance"),
    Fault("batch size and width swapped", SCALING, "d_sae / batch_size", "batch_size / d_sae"),
    Fault("norm by the mean", SCALING, ".nanmedian()", ".nanmean()"),
    Fault(
        "factor T missing",
        PERIODIC,
        "self.interval * effective * measured",
        "effective * measured",
    ),
    Fault(
        "interval ignored", PERIODIC, "step_input.n_training_steps % self.interval == 0", "True"
    ),
    Fault(
        "warm-up ignored",
        MIXIN,
        "cfg.c2r_coefficient, cfg.c2r_warm_up_steps",
        "cfg.c2r_coefficient, 0",
    ),
    Fault(
        "start step ignored",
        PERIODIC,
        "if step >= self.start_step else 0.0",
        "if True else 0.0",
    ),
    Fault(
        "coefficient 0 still applied",
        PERIODIC,
        "applied = due and coefficient > 0",
        "applied = due",
    ),
    Fault(
        "metrics of penalty steps only",
        PERIODIC,
        "            return {}\n        coefficient",
        "            self.metrics = {}\n            return {}\n        coefficient",
    ),
    Fault(
        "decoder norms forgotten",
        MIXIN,
        "return norms * torch.linalg",
        "return norms; torch.linalg",
    ),
    Fault(
        "activations not differentiated",
        MIXIN,
        "batch_norms(feature_acts, d",
        "batch_norms(feature_acts.detach(), d",
    ),
    Fault("seed ignored", SEARCH, "step_generator(search.seed, ", "step_generator(0, "),
    Fault(
        "neighbours of another decoder",
        SEARCH,
        "        self._found = {}\n\n    def",
        "        pass\n\n    def",
    ),
    Fault("neighbours of another run", SEARCH, "step < before.last_step or", ""),
    Fault(
        "neighbours never new",
        SEARCH,
        "before is None or before.from_step != from_step",
        "before is None",
    ),
    Fault("neighbours kept from step to step", SEARCH, "if search.penalties > 1", "if True"),
    Fault("reused neighbours searched again", SEARCH, "if search.penalties > 1", "if False"),
    Fault("backbone's losses dropped", PERIODIC, "return {**losses, **self", "return {**self"),
    Fault("units of normalized latents forgotten", MIXIN, "unit_of_latents(cfg, norm)", "1.0"),
    Fault(
        "square root of d_in forgotten", "architectures/scale.py", "/ math.sqrt(cfg.d_in)", ""
    ),
    Fault(
        "layer norm's mean kept",
        "architectures/scale.py",
        "sae_in - sae_in.mean(dim=-1, keepdim=True)",
        "sae_in",
    ),
    Fault(
        "OrtSAE scaled by r",
        "architectures/ort.py",
        "self.process_group).square()",
        "self.process_group)",
    ),
    Fault(
        "NaN hidden by the root",
        NORMS,
        "torch.where(energy == 0, 0.0",
        "torch.where(~(energy > 0), 0.0",
    ),
    Fault(
        "others' gradients left out",
        PROCESSES,
        "return _Sum.apply(gradient, ctx.process_group), None",
        "return gradient, None",
    ),
    Fault(
        "every process with chunks of its own",
        NEIGHBORS,
        "    agree(order, process_group)\n",
        "",
    ),
    Fault(
        "every chunk searched by all",
        PROCESSES,
        "range(own, n_chunks, n_processes)",
        "range(n_chunks)",
    ),
    Fault(
        "others' samples left out of r",
        SCALING,
        "join_samples(norms.flatten(), process_group)",
        "norms.flatten()",
    ),
    Fault(
        "others' samples left out of B",
        MIXIN,
        "sae_in.shape[:-1].numel(), self.process_group,",
        "sae_in.shape[:-1].numel(), None,",
    ),
    Fault(
        "waits for those that do not log",
        PERIODIC,
        "penalty.is_due(step_input) or self.process_group is None",
        "True",
    ),
    Fault(
        "neighbours not restored",
        "training/long_run.py",
        "trainer.sae.restore_penalties(",
        "print(",
    ),
    Fault(
        "random state not restored",
        "training/long_run.py",
        "restore_random(self.data_state",
        "print(self.data_state",
    ),
    Fault(
        "part of the buffer forgotten",
        "training/stream.py",
        'self._buffer.served = state["served"]',
        'self._buffer.served = state["served"][:0]',
    ),
    Fault(
        "batches that lay ahead forgotten", "training/stream.py", "self._ahead.extend(", "list("
    ),
    Fault("rows read again", "training/stream.py", 'range(state["rows_of_epoch"])', "range(0)"),
]


TESTS = (
    *(
        "tests/penalties",
        "tests/architectures",
        "tests/test_laws.py",
        "tests/test_processes.py",
    ),
    *("tests/training/test_long_run.py", "tests/training/test_stream.py"),
)


def caught_by(fault: Fault | None, folder: Path) -> str | None:
    """The first test that fails with the fault in place, if one does."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "demo-output", "results"))
    if fault is not None:
        path = folder / "sae_lens_c2r" / fault.file
        text = path.read_text()
        if fault.old not in text:
            raise SystemExit(f"The fault {fault.name!r} no longer fits {fault.file}.")
        path.write_text(text.replace(fault.old, fault.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not exhaustive"]
    process = subprocess.run(
        [*command, *TESTS],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "HYPOTHESIS_PROFILE": "dev"},
        capture_output=True,
        text=True,
    )
    failed = [
        line for line in process.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
    ]
    return failed[0].split()[1] if failed else None


def caught_by_in_a_copy(fault: Fault | None) -> str | None:
    """The same in a folder that is gone afterwards."""
    with TemporaryDirectory() as folder:
        return caught_by(fault, Path(folder, "copy"))


def main() -> None:
    """Plant every fault, or those whose names hold the words given, and print the table."""
    words = " ".join(sys.argv[1:])
    if failed := caught_by_in_a_copy(None):
        sys.exit(f"{failed} fails without any fault.")
    table = Table("fault", "file", "caught by", title="Planted faults")
    chosen = [fault for fault in FAULTS if words in fault.name]
    survivors = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each waits for a process of its own
        for fault, test in zip(chosen, pool.map(caught_by_in_a_copy, chosen), strict=True):
            table.add_row(fault.name, fault.file, test or "NOTHING")
            print(f"{fault.name}: {test or 'NOTHING'}", flush=True)
            survivors += [] if test else [fault.name]
    Console(width=160).print(table)
    sys.exit(f"Nothing caught: {', '.join(survivors)}" if survivors else 0)


if __name__ == "__main__":
    main()
