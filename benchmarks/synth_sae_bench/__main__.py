"""`python -m benchmarks.synth_sae_bench`: train what is missing, then tables and figures."""

from pathlib import Path

from benchmarks.synth_sae_bench.command import main
from benchmarks.synth_sae_bench.world import SIZES, Size, World

QUICK = Size("2k", (8,), 32_768, 65_536, evaluation=4_096)

if __name__ == "__main__":
    main(
        SIZES,
        QUICK,
        World,
        seeds=5,
        out=Path("benchmarks/results/synth_sae_bench"),
        description="Features that nobody here chose: SynthSAEBench.",
    )
