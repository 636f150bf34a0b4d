"""`python -m benchmarks.planted`: train what is missing, then tables and figures."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks.page import refill
from benchmarks.planted.tables import same_children_table
from benchmarks.planted.world import World
from benchmarks.synth_sae_bench.command import main
from benchmarks.synth_sae_bench.methods import runs_of
from benchmarks.synth_sae_bench.runs import results_of
from benchmarks.synth_sae_bench.schedules import tables_of_two_schedules
from benchmarks.synth_sae_bench.world import Size

METHODS = {
    "BatchTopK": (0.0,),
    "C2R": (2, 5, 20),
    "C2R, excess gate": (1, 5, 20, 60, 200),
    "OrtSAE": (0.25, 1, 4),
    "Matryoshka": (0.0,),
    "C2R, directions only": (5, 20),
    "C2R, activations only": (5, 20),
}
# The sparsity was chosen after 32 was tried, at which BatchTopK absorbs next to nothing.
MINILM = Size(
    "minilm",
    (16,),
    1_000_000,
    458_752,
    evaluation=40_960,
    batch_size=512,
    autocast=True,
    methods=METHODS,
    other_training_samples=(2_000_000,),
)
# The highest explained variance of `--choose-lr`, with more than twice the dead latents.
OTHER_SCHEDULE = replace(
    MINILM,
    name="minilm-other-schedule",
    lr=3e-3,
    decay=0.8,
    methods={"BatchTopK": (0.0,), "C2R": (5,)},
    other_training_samples=(),
)
QUICK = replace(
    MINILM,
    training_samples=20_480,
    pool=16_384,
    evaluation=8_192,
    other_training_samples=(40_960,),
)
SEEDS = 3
RESULTS, PAGE = Path("benchmarks/results/planted"), Path("docs/planted.md")


def page_tables() -> dict[str, str]:
    """The tables of the results that are kept, by the names of their places in the page."""
    ours = results_of(runs_of(MINILM, seeds=SEEDS), RESULTS / f"{MINILM.name}.jsonl")
    [longer] = MINILM.other_training_samples
    return {
        **tables_of_two_schedules(MINILM, OTHER_SCHEDULE, folder=RESULTS, seeds=SEEDS),
        "same children": same_children_table(MINILM, ours),
        "same children, longer": same_children_table(
            replace(MINILM, training_samples=longer), ours
        ),
    }


def show(_size: Size, _found: Mapping[str, str]) -> None:
    """Put the tables of all sizes into the page."""
    refill(PAGE, page_tables())


if __name__ == "__main__":
    main(
        {size.name: size for size in (MINILM, OTHER_SCHEDULE)},
        QUICK,
        World,
        seeds=SEEDS,
        out=RESULTS,
        description="Features planted into MiniLM's activations.",
        show=show,
    )
