"""`sae-lens-c2r demo`."""

import os
from pathlib import Path

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import check_writable
from sae_lens_c2r.cli import _shared as shared
from sae_lens_c2r.cli._shared import console_while_loading, count_option, error_boundary, option


def demo(
    out: Path = option(Path("demo-output"), "Folder for the SAEs, the numbers and the report."),
    tokens: int = count_option(160_000, "Tokens to train on, of 440,000.", least=2048),
    d_sae: int = option(1536, "Latents of each SAE."),
    k: int = option(32, "Latents active per token, on average."),
    c2r_coefficient: float = option(5.0, "Strength of the C2R penalty."),
    seed: int = option(0, "Seed of the weights and of the data.", min=0, max=2**63 - 1),
    device: str | None = shared.DEVICE,
    overwrite: bool = shared.OVERWRITE,
) -> None:
    """Train BatchTopK with and without C2R on a language model, offline, and compare them."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with error_boundary("Interrupted; nothing was written."):
        check_writable(out)
        if not overwrite and out.is_dir() and any(out.iterdir()):
            advice = "Choose another folder, or replace the demo's files with `--overwrite`."
            raise UserError("out", "be empty", f"files in {out}", advice)
        console = console_while_loading()
        from sae_lens_c2r.demo.demo import run_demo

        settings: dict[str, float] = {"tokens": tokens, "d_sae": d_sae, "k": k}
        settings |= {"c2r_coefficient": c2r_coefficient, "seed": seed}
        device = shared.usable_device(device)
        run_demo(out, console, device=device, tell=console.say, **settings)
