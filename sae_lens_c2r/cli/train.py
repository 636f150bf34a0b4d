"""`sae-lens-c2r train`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sae_lens_c2r._support.torchrun import take_place, was_restarted
from sae_lens_c2r.cli._console import console_while_loading, error_boundary, say
from sae_lens_c2r.cli._options import DeviceOption, ReleaseArgument, usable_device


def train(
    release: ReleaseArgument,
    out: Annotated[Path, typer.Option(help="Folder for the folders of the SAEs.")] = Path(
        "saes"
    ),
    only: Annotated[
        list[str] | None, typer.Option(help="Id of an SAE to train; may be repeated.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A value in place of the file's, sae.k=50; may be repeated."
        ),
    ] = None,
    device: DeviceOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint, if any.")
    ] = False,
    checkpoint_minutes: Annotated[
        float, typer.Option(min=0, help="Minutes between checkpoints; 0 for none.")
    ] = 30.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
    ] = False,
) -> None:
    """Train the SAEs of a release, except those that are in the folder already."""
    take_place()
    with error_boundary("Interrupted.", how_to_go_on=lambda: how_to_go_on(out)):
        from sae_lens_c2r._support.words import counted
        from sae_lens_c2r._support.yaml_text import parse_overrides
        from sae_lens_c2r.releases.files import find_release, read_release
        from sae_lens_c2r.training.distributed import (
            all_reduce_max,
            init_distributed,
            is_main_process,
            on_all_ranks,
            on_main_process,
            world_size,
        )

        with init_distributed():
            values = parse_overrides(overrides or [])
            restarted = bool(all_reduce_max(was_restarted()))  # on any node
            chosen = on_all_ranks(lambda: read_release(find_release(release), overrides=values))
            console = console_while_loading(quiet=not is_main_process())
            from sae_lens_c2r.training.model_check import check_model
            from sae_lens_c2r.training.plan import make_plan
            from sae_lens_c2r.training.summary import print_plan
            from sae_lens_c2r.training.train import train as train_plan

            plan = on_all_ranks(
                lambda: make_plan(chosen, device=usable_device(device), only=tuple(only or ()))
            )
            on_main_process(lambda: check_model(plan, partial(say, console)))
            on_main_process(lambda: print_plan(plan, console, n_ranks=world_size()))
            if dry_run:
                return
            folders = train_plan(
                plan,
                out,
                resume=resume or restarted,
                checkpoint_minutes=checkpoint_minutes,
                log=partial(say, console),
            )
            say(console, f"{counted(len(folders), 'SAE')} trained, in {out}.")


def how_to_go_on(out: Path) -> str:
    """Advice where training was ended from outside, if it left a checkpoint."""
    if not any((out / ".training").glob("step-*")):
        return ""
    return " `--resume` continues from the last checkpoint."
