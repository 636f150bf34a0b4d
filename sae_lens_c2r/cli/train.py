"""`sae-lens-c2r train` and `sae-lens-c2r finetune`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sae_lens_c2r._support.process import take_place, was_restarted
from sae_lens_c2r._support.remote_code import TRUSTED
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import console_while_loading, count_option, error_boundary, option

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
    as_json: bool = shared.JSON,
) -> None:
    """Train the SAEs of a release, except those that are in the folder already."""
    take_place()
    with error_boundary(how_to_go_on=lambda: _how_to_go_on(out)):
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
                lambda: make_plan(chosen, device=shared.usable_device(device), only=only or ())
            )
            distributed.on_main_process(lambda: _show(plan, console, as_json=as_json))
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


def finetune(
    saes: list[str] = shared.SAES,
    tokens: int = count_option(..., "Tokens to train on, like 5M."),
    out: Path = option(Path("finetuned"), "Folder for the SAEs, the numbers and the report."),
    model: str | None = shared.MODEL,
    hook_name: str | None = option(None, "Where activations are taken.", unset="the SAE's"),
    dataset: str | None = option(
        None, "Text to train on: a file, a folder, a dataset on the Hub.", unset="the SAE's"
    ),
    split: str | None = shared.SPLIT,
    subset: str | None = shared.SUBSET,
    column: str | None = shared.COLUMN,
    context_size: int | None = option(None, "Tokens in a row.", unset="the SAE's"),
    architecture: str | None = option(
        None, "Architecture to train.", unset="the SAE's own, with C2R"
    ),
    k: float | None = option(None, "Latents per token.", unset="the SAE's, or its L0"),
    lr: float | None = option(None, "Learning rate.", unset="a third of the SAE's"),
    c2r_coefficient: float | None = option(
        None, "Strength of the penalty.", unset="the SAE's, or 5 if it has none"
    ),
    changes: list[str] | None = shared.SET,
    text: str | None = option(
        None, "Text to measure on, as for `inspect`.", unset="the training text"
    ),
    measured_tokens: int = count_option(
        100_000, "Tokens to measure on, about; at least one batch."
    ),
    device: str | None = shared.DEVICE,
    trust_remote_code: bool = shared.TRUST,
    resume: bool = shared.RESUME,
    checkpoint_minutes: float = shared.CHECKPOINT_MINUTES,
    overwrite: bool = option(False, "Replace an earlier run's report.", "--overwrite"),
    dry_run: bool = shared.DRY_RUN,
) -> None:
    """Fine-tune existing SAEs with C2R, and show what changed."""
    with error_boundary(how_to_go_on=lambda: _how_to_go_on(out)) as problems:
        TRUSTED.set(trust_remote_code)
        from sae_lens_c2r._support.yaml_text import parse_overrides

        given: dict[str, Any] = {
            "language_model.training_tokens": tokens,
            "language_model.hook_name": hook_name,
            "language_model.dataset": dataset,
            "language_model.split": split,
            "language_model.subset": subset,
            "language_model.column": column,
            "language_model.context_size": context_size,
            "sae.architecture": architecture,
            "sae.k": int(k) if k is not None and k.is_integer() else k,  # TopK has 32, not 32.0
            "sae.c2r_coefficient": c2r_coefficient,
            "runner.lr": lr,
        }
        wanted = {key: value for key, value in given.items() if value is not None}
        wanted |= parse_overrides(changes or [])
        console = console_while_loading()
        from sae_lens_c2r.finetune.release import keys_of_model
        from sae_lens_c2r.finetune.run import REPORT, Finetuning
        from sae_lens_c2r.inspection.report import in_terminal
        from sae_lens_c2r.saes.sae_ref import find_saes
        from sae_lens_c2r.training.train import train as train_plan

        device = shared.usable_device(device)
        refs = find_saes(saes, on_error=problems.append)
        if problems:
            return
        if model is not None:
            wanted = keys_of_model(model) | wanted
        tuning = Finetuning(
            refs, wanted, device=device, text=text, n_tokens=measured_tokens, tell=console.say
        )
        tuning.check_out(out, resume=resume, overwrite=overwrite, look_only=dry_run)
        plan = tuning.plan()
        _show(plan, console)
        if dry_run:
            train_plan(plan, out, resume=resume, dry_run=True, log=console.say)
            return
        shown = tuning.run(plan, out, resume=resume, checkpoint_minutes=checkpoint_minutes)
        console.print(*in_terminal(*shown, width=console.width), sep="\n")
        console.say(f"Report: {out / REPORT}")


def _show(plan: "Plan", console: shared.LineConsole, as_json: bool = False) -> None:
    """Print a plan whose model and text were looked at."""
    from sae_lens_c2r.training.distributed import world_size
    from sae_lens_c2r.training.plan import check_inputs
    from sae_lens_c2r.training.summary import numbers_of, print_plan

    check_inputs(plan, console.say)
    if as_json:
        print(json.dumps(numbers_of(plan), indent=1))
    else:
        print_plan(plan, console, n_ranks=world_size())


def _how_to_go_on(out: Path) -> str:
    """Advice after an interruption, if training left a checkpoint."""
    if not any((out / ".training").glob("step-*")):
        return ""
    return " `--resume` continues from the last checkpoint."
