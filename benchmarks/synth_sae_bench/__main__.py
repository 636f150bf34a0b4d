"""`python -m benchmarks.synth_sae_bench`: train what is missing, then tables and figures."""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.page import fill
from benchmarks.synth_sae_bench.command import main
from benchmarks.synth_sae_bench.tables import WHICH_ONE
from benchmarks.synth_sae_bench.world import SIZES, Size, World

RESULTS = Path("benchmarks/results/synth_sae_bench")
PAGE, README = Path("docs/evidence.md"), Path("README.md")
QUICK = Size("2k", (8,), 32_768, 65_536, evaluation=4_096, other_training_samples=(16_384,))


def show(size: Size, found: Mapping[str, str]) -> None:
    """Put the tables of the 2k size into the pages.

    Args:
        size: Which size.
        found: Its tables by their names.
    """
    if size.name != "2k":
        return
    for page, parts in {PAGE: found, README: {WHICH_ONE: found[WHICH_ONE]}}.items():
        page.write_text(fill(page.read_text(encoding="utf-8"), parts), encoding="utf-8")


if __name__ == "__main__":
    main(
        SIZES,
        QUICK,
        World,
        seeds=5,
        out=RESULTS,
        description="Features that nobody here chose: SynthSAEBench.",
        show=show,
    )
