"""`sae-lens-c2r demo`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli._console import console_while_loading, error_boundary
from sae_lens_c2r.cli._options import DeviceOption, OverwriteOption, usable_device


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the SAEs, the numbers and the report.")
    ] = Path("demo-output"),
    tokens: Annotated[int, typer.Option(min=2048, help="Tokens of training.")] = 400_000,
    d_sae: Annotated[int, typer.Option(help="Latents of each SAE.")] = 4096,
    k: Annotated[int, typer.Option(help="Latents active per token, on average.")] = 32,
    c2r_coefficient: Annotated[float, typer.Option(help="Strength of the C2R penalty.")] = 5.0,
    seed: Annotated[
        int, typer.Option(min=0, max=2**63 - 1, help="Seed of the weights and of the data.")
    ] = 0,
    device: DeviceOption = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Train BatchTopK with and without C2R on a real transformer, offline, and compare them."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with error_boundary("Interrupted; nothing was written."):
        if out.exists() and not out.is_dir():
            raise UserError(f"`out` should be a folder. Found a file: {out}")
        if not overwrite and out.is_dir() and any(out.iterdir()):
            raise UserError(
                f"`out` should be empty. Found files in {out}; "
                "choose another folder, or replace the demo's files there with --overwrite."
            )
        console = console_while_loading()
        from sae_lens_c2r.demo.demo import run_demo

        settings: dict[str, float] = {"tokens": tokens, "d_sae": d_sae, "k": k}
        settings |= {"c2r_coefficient": c2r_coefficient, "seed": seed}
        run_demo(out, console, device=usable_device(device), **settings)
