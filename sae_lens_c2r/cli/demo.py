"""`sae-lens-c2r demo`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sae_lens_c2r.cli._console import console_while_loading
from sae_lens_c2r.cli._errors import error_boundary
from sae_lens_c2r.cli._options import DeviceOption, OverwriteOption, usable_device


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the SAEs, the numbers and the report.")
    ] = Path("demo-output"),
    tokens: Annotated[int, typer.Option(help="Tokens of training.")] = 400_000,
    d_sae: Annotated[int, typer.Option(help="Latents of each SAE.")] = 4096,
    k: Annotated[int, typer.Option(help="Latents active per token, on average.")] = 32,
    c2r_coefficient: Annotated[float, typer.Option(help="Strength of the C2R penalty.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the data.")] = 0,
    device: DeviceOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Train BatchTopK with and without C2R on a real transformer, offline, and compare them."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with error_boundary("Interrupted; nothing was written."):
        console = console_while_loading()
        from sae_lens_c2r.demo.options import DemoOptions

        try:
            options = DemoOptions(
                out=out,
                tokens=tokens,
                d_sae=d_sae,
                k=k,
                c2r_coefficient=c2r_coefficient,
                seed=seed,
                device=usable_device(device),
                overwrite=overwrite,
            )
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
        options.check_out()
        from sae_lens_c2r.demo.end_to_end import run_demo

        run_demo(options, console)
