"""`python -m benchmarks.minilm_text`: train what is missing, then tables and figures."""

from dataclasses import replace
from pathlib import Path

from benchmarks.minilm_text.world import World
from benchmarks.synth_sae_bench.command import main
from benchmarks.synth_sae_bench.world import Size

MINILM_TEXT = Size(
    "minilm-text",
    (32,),
    1_600_000,
    458_752,
    evaluation=40_960,
    batch_size=512,
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
QUICK = replace(
    MINILM_TEXT,
    training_samples=20_480,
    pool=16_384,
    evaluation=8_192,
    other_training_samples=(10_240,),
)
SEEDS = 3
RESULTS = Path("benchmarks/results/minilm_text")

if __name__ == "__main__":
    main(
        {MINILM_TEXT.name: MINILM_TEXT},
        QUICK,
        World,
        seeds=SEEDS,
        out=RESULTS,
        description="C2R and the halves of its gradient on MiniLM's activations.",
    )
