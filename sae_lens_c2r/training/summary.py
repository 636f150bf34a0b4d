"""A plan, to look at before hours of training."""

from rich.console import Console

from sae_lens_c2r._support.words import counted
from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.reporting.tables import terminal_table
from sae_lens_c2r.training.costs import (
    checkpoint_bytes,
    disk_bytes,
    memory_bytes,
    weight_bytes,
)
from sae_lens_c2r.training.data_parallel import group_size
from sae_lens_c2r.training.placement import place
from sae_lens_c2r.training.plan import Plan

Shares = list[tuple[list[str], int]]
SHOWN = ("k", "c2r_coefficient", "ort_coefficient", "l1_coefficient", "l0_coefficient")


def print_plan(plan: Plan, console: Console, *, n_ranks: int = 1) -> None:
    """Print the SAEs of a plan, what they are trained on, and what that takes.

    Args:
        plan: The plan.
        console: Where.
        n_ranks: How many processes will train it.
    """
    release, source = plan.release, plan.release.source
    shares = _shares(plan, n_ranks)
    console.print(f"{release.name} ({release.status}): {release.description}", markup=False)
    if isinstance(source, LanguageModel):
        console.print(
            f"{source.hub_id} at {source.hook_name}, on {source.dataset} in rows of "
            f"{source.context_size:,} tokens",
            markup=False,
        )
    _print_options(plan, console)
    rows = []
    for sae_id, config in plan.saes.items():
        options = [
            f"{name} {getattr(config, name):g}" for name in SHOWN if hasattr(config, name)
        ]
        size_on_disk = size(weight_bytes(config))
        about = f"{config.architecture()}, {', '.join(options)}"
        rows.append([sae_id, f"{config.d_sae:,}", size_on_disk, str(plan.seeds[sae_id]), about])
    for note in plan.notes:
        console.print(note, markup=False, soft_wrap=True)
    headings = ["SAE", "d_sae", "weights", "seed", "options"]
    console.print(terminal_table(headings, rows, text=(0, 4), broken=(4,)))
    unit, beside = "samples", ""
    if isinstance(source, LanguageModel):
        unit, beside = "tokens", " beside the model"
    console.print(
        f"{_all_at_once(plan)}: {counted(plan.steps, 'step')} of {plan.batch_size:,}, "
        f"{plan.samples:,} {unit} each. About {_memory(shares)}{beside}, "
        f"{size(disk_bytes(plan))} on disk, and until then three checkpoints of "
        f"{size(checkpoint_bytes(plan))} at most."
    )
    if n_ranks > 1:
        _print_shares(plan, console, shares, unit)


def _print_options(plan: Plan, console: Console) -> None:
    """What of it is not SAELens's."""
    if plan.norm_multiple is not None:
        console.print(
            f"Tokens whose norm is above {plan.norm_multiple:g} times the median are left out."
        )
    for steps in sorted(set(plan.k_anneal_steps.values())):
        annealed = [i for i, of_sae in plan.k_anneal_steps.items() if of_sae == steps]
        configs = [plan.saes[sae_id] for sae_id in annealed]
        names = sorted({config.architecture() for config in configs})
        sizes = sorted({"d_in" if each.d_in <= each.d_sae else "d_sae" for each in configs})
        console.print(
            f"k falls from {' or '.join(sizes)} over the first {counted(steps, 'step')} of "
            f"{counted(len(annealed), 'SAE')}: {', '.join(names)}."
        )


def _all_at_once(plan: Plan) -> str:
    saes = counted(len(plan.saes), "SAE")
    return saes if len(plan.saes) == 1 else f"{saes}, all at once"


def _memory(shares: Shares) -> str:
    most = size(max(n_bytes for _, n_bytes in shares))
    return f"{most} of memory" if len(shares) == 1 else f"{most} of memory a process"


def _shares(plan: Plan, n_ranks: int) -> Shares:
    """The SAEs of each process, and the memory that it takes."""
    n_parts = group_size(plan, n_ranks)
    return [
        (share, memory_bytes(plan, share, n_parts=n_parts))
        for share in place(plan.saes, n_ranks // n_parts)
        for _ in range(n_parts)
    ]


def _print_shares(plan: Plan, console: Console, shares: Shares, unit: str) -> None:
    n_parts = group_size(plan, len(shares))
    if n_parts > 1:
        console.print(
            f"Each batch is split over {n_parts} processes, {plan.batch_size // n_parts:,} "
            f"{unit} each: the weights are those of one process up to rounding."
        )
    rows = [
        [str(rank), str(len(share)), size(n_bytes), ", ".join(share)]
        for rank, (share, n_bytes) in enumerate(shares)
    ]
    headings = ["process", "SAEs", "memory", "which"]
    console.print(terminal_table(headings, rows, text=(3,), broken=(3,)))


def size(n_bytes: int) -> str:
    """Bytes in the unit that suits them."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:,.1f} {unit}"
    return f"{n_bytes / 1000:,.1f} kB"
