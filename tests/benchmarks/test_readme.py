"""The numbers in the README's sentences are those of rows and cards.

They are `exhaustive`: only who changes those need run them.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import RESULTS
from benchmarks.evidence import DATA, from_plain, hierarchies_told, rows_of

README = " ".join(Path("README.md").read_text(encoding="utf-8").split())
CARDS = Path("hub_cards")


def metrics_of(card: str, *names: str) -> dict[str, dict[str, Any]]:
    """Return what some evaluations measured of a card's SAEs, by their ids."""
    saes = json.loads((CARDS / card / "sae-lens-c2r.json").read_bytes())["saes"]
    return {
        sae_id: {k: v for name in names for k, v in sae["evaluations"][name]["metrics"].items()}
        for sae_id, sae in saes.items()
    }


@pytest.mark.exhaustive
def test_the_verdict_tells_the_rows_of_smollm2() -> None:
    ours = [
        from_plain(rows_of(*DATA[f"language model, k = {k}"]))["C2R", 2.0] for k in (10, 32)
    ]
    price, dead = ([each[name].mean for each in ours] for name in ("percent", "dead_latents"))
    assert f"for {price[0]:.0f} to {price[1]:.0f} % more unexplained variance" in README
    assert f"and {100 * dead[0]:.0f} to {100 * dead[1]:.0f} points more dead latents" in README
    scores = {
        sae_id.rpartition("/")[2]: each["absorption"]
        for sae_id, each in metrics_of("smollm2-135m-layer-9", "absorption").items()
    }
    plain, of_ours = scores["batchtopk_k32"], scores["batchtopk_c2r_k32_lambda_5"]
    assert (
        f"absorption score rises from {plain:.2f} to {of_ours:.2f} (one seed, λ = 5)" in README
    )


@pytest.mark.exhaustive
def test_the_verdict_tells_the_rows_of_synthetic_settings() -> None:
    [settings] = re.findall(r"absorbs 0\.05 or more in (\d+) settings", hierarchies_told())
    [fall, more] = re.findall(r"median of (\d+) %", hierarchies_told())
    assert (
        f"in all {settings} small hierarchies where BatchTopK absorbs, by a median of {fall} "
        f"%, for {more} % more unexplained variance" in README
    )
    tables = (RESULTS / "four_worlds" / "tables.md").read_text(encoding="utf-8")
    [line] = [line for line in tables.splitlines() if line.startswith("| Eq. (13) holds")]
    paper, *own = re.findall(r"\d+\.\d+(?= %|\N{NARROW NO-BREAK SPACE}±| ±)", line)
    least, most = (100 * each(map(float, own)) for each in (min, max))
    assert f"as in {float(paper):.0f} % of absorption pairs in the paper" in README
    assert f"{least:.0f} to {most:.0f} % in our own worlds" in README


@pytest.mark.exhaustive
def test_the_cost_of_a_step_is_that_of_the_benchmark() -> None:
    shown = []
    for device in ("cuda", "cpu"):
        rows = json.loads((RESULTS / f"training_step-{device}.json").read_bytes())["rows"]
        ratios = [row["step_over_plain"]["5"] for row in rows if row["chunk"] == "8,192"]
        shown.append((f"{min(ratios):.2f}", f"{max(ratios):.2f}"))
    (gpu_least, gpu_most), (least, most) = shown
    assert (
        f"takes [{gpu_least} to {gpu_most} times](docs/costs.md) as long on an H200" in README
    )
    assert f"and {least} to {most} on a CPU" in README


@pytest.mark.exhaustive
def test_the_demo_prints_what_is_said() -> None:
    plain, ours = metrics_of("demo", "weights", "held_out").values()
    assert (
        f"composition falls from {plain['composition']:.3f} to {ours['composition']:.3f}, "
        f"where chance is {plain['chance_composition']:.3f}; explained variance stays at "
        f"{plain['explained_variance']:.2f}, and co-firing rises from {plain['co_firing']:.2f} "
        f"to {ours['co_firing']:.2f}. Of {plain['pairs_above_0.7']:.0f} pairs" in README
    )
    assert f"{ours['explained_variance']:.2f}" == f"{plain['explained_variance']:.2f}"
