"""`python -m benchmarks.planted`: train what is missing, then tables and figures."""

from pathlib import Path

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
MINILM = Size(
    "minilm", (32,), 1_000_000, 458_752, evaluation=40_960, batch_size=512, methods=METHODS
)
QUICK = Size("minilm", (32,), 20_480, 16_384, evaluation=8_192, methods=METHODS)

if __name__ == "__main__":
    main(
        {MINILM.name: MINILM},
        QUICK,
        World,
        seeds=3,
        out=Path("benchmarks/results/planted"),
        description="Features planted into MiniLM's activations.",
    )
