"""`python -m benchmarks.minilm_text`: train what is missing, then tables and figures."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.minilm_text.world import World
from benchmarks.page import refill
from benchmarks.synth_sae_bench.command import main
from benchmarks.synth_sae_bench.schedules import tables_of_two_schedules
from benchmarks.synth_sae_bench.world import Size

MINILM_TEXT = Size(
    "minilm-text",
    (32,),
    1_600_000,
    458_752,
    evaluation=40_960,
    batch_size=512,
    lr=3e-3,
    decay=0.8,
    autocast=True,
    methods={
        "BatchTopK": (0.0,),
        "C2R": (5, 20),
        "C2R, excess gate": (5,),
        "OrtSAE": (0.25,),
        "C2R, directions only": (5, 20),
        "C2R, activations only": (5, 20),
    },
    other_training_samples=(400_000,),
)
# That of the planted features. Hardly less explained variance, and fewer dead latents.
OTHER_SCHEDULE = replace(
    MINILM_TEXT,
    name="minilm-text-other-schedule",
    lr=1e-3,
    decay=0.2,
    methods={
        "BatchTopK": (0.0,),
        "C2R": (5,),
        "C2R, directions only": (5,),
        "C2R, activations only": (5,),
    },
    other_training_samples=(),
)
QUICK = replace(
    MINILM_TEXT,
    training_samples=20_480,
    pool=16_384,
    evaluation=8_192,
    other_training_samples=(10_240,),
)
SEEDS = 3
RESULTS, PAGE = Path("benchmarks/results/minilm_text"), Path("docs/minilm-text.md")


def page_tables() -> dict[str, str]:
    """The tables of the results that are kept, by the names of their places in the page."""
    return tables_of_two_schedules(MINILM_TEXT, OTHER_SCHEDULE, folder=RESULTS, seeds=SEEDS)


def show(_size: Size, _found: Mapping[str, str]) -> None:
    """Put the tables of both schedules into the page."""
    refill(PAGE, page_tables())


if __name__ == "__main__":
    main(
        {size.name: size for size in (MINILM_TEXT, OTHER_SCHEDULE)},
        QUICK,
        World,
        seeds=SEEDS,
        out=RESULTS,
        description="C2R and the halves of its gradient on MiniLM's activations.",
        show=show,
    )
