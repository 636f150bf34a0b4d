"""Known features for C2R by what latents read: worlds and weights drawn apart."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.experiment import Size, read_yaml
from benchmarks.report import draw_sizes
from benchmarks.worlds import four_worlds, synth_sae_bench

DATA = read_yaml(Path(__file__))


def drawn_apart(size: Size) -> Size:
    """Return a size with worlds drawn from seeds of their own, and the forms to try."""
    apart = {"other_samples": (), "world_seeds_after": DATA["added"]}
    return replace(size, ks=size.ks[:1], **apart, **DATA["saes"])


ALL = [drawn_apart(size) for size in (*four_worlds.ALL, *synth_sae_bench.SIZES["2k-fresh"])]
SIZES = {
    "all": ALL,
    **{size.name: [size] for size in ALL},
    "quick": [replace(drawn_apart(four_worlds.QUICK), seeds=1)],
}
draw = partial(draw_sizes, sizes={size.name: [size] for size in ALL})
