"""`python -m benchmarks.planted`: train what is missing, then tables and figures."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.page import fill
from benchmarks.planted.world import World
from benchmarks.synth_sae_bench.command import main
from benchmarks.synth_sae_bench.world import Size

METHODS = {
    "BatchTopK": (0.0,),
    "C2R": (2, 5, 20),
    "C2R, excess gate": (1, 5, 20),
    "OrtSAE": (0.25, 1, 4),
    "Matryoshka": (0.0,),
    "C2R, directions only": (5,),
    "C2R, activations only": (5,),
}
# The sparsity was chosen after 32 was tried, at which BatchTopK absorbs next to nothing.
MINILM = Size(
    "minilm", (16,), 1_000_000, 458_752, evaluation=40_960, batch_size=512, methods=METHODS
)
QUICK = Size("minilm", (16,), 20_480, 16_384, evaluation=8_192, methods=METHODS)
SEEDS = 3
RESULTS, PAGE = Path("benchmarks/results/planted"), Path("docs/planted.md")


def show(_size: Size, found: Mapping[str, str]) -> None:
    """Put the tables into the page.

    Args:
        found: The tables by their names.
    """
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")


if __name__ == "__main__":
    main(
        {MINILM.name: MINILM},
        QUICK,
        World,
        seeds=SEEDS,
        out=RESULTS,
        description="Features planted into MiniLM's activations.",
        show=show,
    )
