"""`python -m benchmarks.synth_sae_bench`: train what is missing, then tables and figures."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.page import refill
from benchmarks.synth_sae_bench.command import main
from benchmarks.synth_sae_bench.methods import runs_of
from benchmarks.synth_sae_bench.runs import results_of
from benchmarks.synth_sae_bench.tables import WHICH_ONE, tables
from benchmarks.synth_sae_bench.world import SIZES, Size, World

RESULTS = Path("benchmarks/results/synth_sae_bench")
PAGE, README = Path("docs/evidence.md"), Path("README.md")
QUICK = Size("2k", (8,), 32_768, 65_536, evaluation=4_096, other_training_samples=(16_384,))
SEEDS = 5
OF_4K = (WHICH_ONE, "questions", "methods")


def page_tables() -> dict[str, str]:
    """The tables of the results that are kept, by the names of their places in the page."""
    of_2k, of_4k = (
        tables(size, results_of(runs_of(size, seeds=SEEDS), RESULTS / f"{size.name}.jsonl"))
        for size in (SIZES["2k"], SIZES["4k"])
    )
    return {**of_2k, **{f"{name}, 4k": of_4k[name] for name in OF_4K}}


def show(_size: Size, _found: Mapping[str, str]) -> None:
    """Put the tables that are kept of both sizes into the pages, whichever was run."""
    found = page_tables()
    for page, parts in {PAGE: found, README: {WHICH_ONE: found[WHICH_ONE]}}.items():
        refill(page, parts)


if __name__ == "__main__":
    main(
        SIZES,
        QUICK,
        World,
        seeds=SEEDS,
        out=RESULTS,
        description="Features that nobody here chose: SynthSAEBench.",
        show=show,
    )
