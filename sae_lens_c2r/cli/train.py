"""`sae-lens-c2r train`."""

from pathlib import Path
from typing import TYPE_CHECKING

from sae_lens_c2r._support.process import take_place, was_restarted
from sae_lens_c2r._support.remote_code import TRUSTED
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import console_while_loading, error_boundary, option

if TYPE_CHECKING:
    from sae_lens_c2r.training.plan import Plan


def train(
    release: str = shared.RELEASE,
    out: Path = option(Path("saes"), "Folder for the SAEs, a subfolder each."),
    only: list[str] | None = option(None, "Id of an SAE to train; may be repeated."),
    overrides: list[str] | None = shared.SET,
    device: str | None = shared.DEVICE,
    trust_remote_code: bool = shared.TRUST,
    resume: bool = shared.RESUME,
    checkpoint_minutes: float = shared.CHECKPOINT_MINUTES,
    dry_run: bool = shared.DRY_RUN,
) -> None:
    """Train the SAEs of a release, except those that are in the folder already."""
    take_place()
    with error_boundary(how_to_go_on=lambda: how_to_go_on(out)):
        TRUSTED.set(trust_remote_code)
        from sae_lens_c2r._support.errors import counted
        from sae_lens_c2r._support.files import check_writable
        from sae_lens_c2r._support.yaml_text import parse_overrides
        from sae_lens_c2r.releases.files import find_release, read_release
        from sae_lens_c2r.training import distributed

        with distributed.init_distributed():
            distributed.on_main_process(lambda: check_writable(out))
            values = parse_overrides(overrides or [])
            restarted = bool(distributed.all_reduce_max(was_restarted()))  # on any node
            chosen = distributed.on_all_ranks(
                lambda: read_release(find_release(release), overrides=values)
            )
            console = console_while_loading(quiet=not distributed.is_main_process())
            from sae_lens_c2r.training.plan import make_plan
            from sae_lens_c2r.training.train import train as train_plan

            plan = distributed.on_all_ranks(
                lambda: make_plan(
                    chosen, device=shared.device_or_usual(device), only=only or ()
                )
            )
            distributed.on_main_process(lambda: show_plan(plan, console))
            folders = train_plan(
                plan,
                out,
                resume=resume or restarted,
                checkpoint_minutes=checkpoint_minutes,
                dry_run=dry_run,
                log=console.say,
            )
            if not dry_run:
                console.say(f"{counted(len(folders), 'SAE')} trained, in {out}.")


def show_plan(plan: "Plan", console: shared.LineConsole) -> None:
    """Print a plan whose model and text were looked at."""
    from sae_lens_c2r.training.distributed import world_size
    from sae_lens_c2r.training.plan import check_inputs
    from sae_lens_c2r.training.summary import print_plan

    check_inputs(plan, console.say)
    print_plan(plan, console, n_ranks=world_size())


def how_to_go_on(out: Path) -> str:
    """Advice after an interruption, if training left a checkpoint."""
    if not any((out / ".training").glob("step-*")):
        return ""
    return " `--resume` continues from the last checkpoint."
