"""The numbers in the README's sentences are those of rows and cards.

They are `exhaustive`: only who changes those need run them.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import RESULTS
from benchmarks.compare import Contrast
from benchmarks.differences import DATA, differences, from_plain, rows_of
from benchmarks.evidence import hierarchies_told

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
    assert {f"{each:.0f}" for each in price} == {"3"}
    assert {f"{100 * each:.0f}" for each in dead} == {"4"}
    said = "for 3 % more unexplained variance and 4 points more dead latents"
    assert said in README
    late = from_plain(rows_of("language_model/letters", 2_048_000, 32))["C2R", 2.0]
    price, dead = late["percent"].mean, 100 * late["dead_latents"].mean
    price_told = f"the price is {price:.0f} % and {dead:.0f} points"
    assert f"With SAELens's defaults, at k = 32, {price_told}" in README
    rows = [rows_of(*DATA[f"language model, k = {k}"]) for k in (10, 32)]
    same = [differences(each, Contrast("OrtSAE", "C2R", [0.25, 2.0])) for each in rows]
    lower = sorted(-each["composition"].mean for each in same)
    dead = sorted(100 * each["dead_latents"].mean for each in same)
    assert f"{lower[0]:.2f} to {lower[1]:.2f} lower, and leaves {dead[0]:.0f} to" in README
    assert f"to {dead[1]:.0f} points more latents dead" in README
    means = rows[1].groupby(["method", "strength"])["full_absorption"].mean()
    absorbs = means["BatchTopK", 0], means["C2R", 5]
    assert f"not even {absorbs[0]:.2f} \u2192 {absorbs[1]:.2f} at k = 32" in README
    longer = rows_of("language_model/longer", 11_776_000, 10)
    rise = from_plain(longer)["C2R", 5.0]["absorption"]
    told = f"by {rise.mean:.2f} \u00b1 {rise.half_width:.2f} ("
    assert longer["seed"].nunique() == 3
    assert f"raises it {told}[three seeds]" in README
    means = longer.groupby("method")["composition"].mean()
    fall = f"falls from {means['BatchTopK']:.2f} to {means['C2R']:.2f}, and absorption rises"
    assert f"{fall} {told}" in Path("docs/evidence.md").read_text(encoding="utf-8")
    scores = {
        sae_id.rpartition("/")[2]: each
        for sae_id, each in metrics_of("smollm2-135m-layer-9", "absorption", "weights").items()
    }
    saes = ("batchtopk_k32", "batchtopk_c2r_k32_lambda_2", "batchtopk_c2r_k32_lambda_5")
    plain, weak, strong = (scores[sae]["full_absorption"] for sae in saes)
    assert (
        f"full absorption (k = 32, one seed) is {plain:.2f} without C2R, {weak:.2f} at λ = 2 "
        f"and {strong:.2f} at λ = 5" in README
    )
    assert scores["batchtopk_k32"]["pairs_above_0.7"] == 1
    assert (
        "BatchTopK SAE has one pair with a cosine above 0.7 among its 4,096 latents" in README
    )


@pytest.mark.exhaustive
def test_the_verdict_tells_the_rows_of_synthetic_settings() -> None:
    [settings] = re.findall(r"absorbs 0\.05 or more in (\d+) settings", hierarchies_told())
    [fall, more] = re.findall(r"median of (\d+) %", hierarchies_told())
    [[least, most]] = re.findall(r"\(-(\d+) to ([\d,]+) %\)", hierarchies_told())
    assert (
        f"in all {settings} small hierarchies where BatchTopK absorbs 0.05 or more. The "
        f"median fall is {fall} %, for a median of {more} % more unexplained variance "
        f"(\N{MINUS SIGN}{least} to {most} %;" in README
    )
    tables = (RESULTS / "four_worlds" / "tables.md").read_text(encoding="utf-8")
    [line] = [line for line in tables.splitlines() if line.startswith("| Eq. (13) holds")]
    paper, *own = re.findall(r"\d+\.\d+(?= %|\N{NARROW NO-BREAK SPACE}±| ±)", line)
    lowest, highest = (100 * each(map(float, own)) for each in (min, max))
    in_demo = metrics_of("demo", "held_out")["batchtopk"]["eq_13_holds"]
    assert (
        f"{float(paper):.0f} % of absorption pairs in the paper, {lowest:.0f} to {highest:.0f} "
        f"% in synthetic data of our own, and {100 * in_demo:.0f} % in the demo" in README
    )


@pytest.mark.exhaustive
def test_the_cost_of_a_step_is_that_of_the_benchmark() -> None:
    rows = json.loads((RESULTS / "training_step-cuda.json").read_bytes())["rows"]
    rows = [row for row in rows if row["d_sae"] == 16_384]
    ratios = [row["step_over_plain"]["5"] for row in rows]
    [(d_in, batch_size)] = {(row["d_in"], row["batch_size"]) for row in rows}
    least, most = min(ratios), max(ratios)
    assert (
        f"takes [{least:.2f} to {most:.2f} times](docs/costs.md) as long on an H200, in "
        f"bfloat16 with {d_in:,} dimensions and batches of {batch_size:,}" in README
    )
    rows = json.loads((RESULTS / "training_step-cpu.json").read_bytes())["rows"]
    ratios = [row["step_over_plain"]["5"] for row in rows if row["chunk"] == "8,192"]
    costs = Path("docs/costs.md").read_text(encoding="utf-8")
    assert f"takes {min(ratios):.2f} to {max(ratios):.2f} times as long" in costs


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
