"""The rows that are kept are those of the plans; pages and cards show them, and no others.

Most are `exhaustive`: only who changes the rows, or what reads them, need run them.
"""

import json
import math
import re
from collections import Counter
from dataclasses import astuple
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import pytest

from benchmarks import evidence, worlds
from benchmarks.__main__ import RESULTS
from benchmarks.compare import Contrast
from benchmarks.differences import DATA, differences, from_plain, rows_kept, rows_of
from benchmarks.evidence import hierarchies_told
from benchmarks.experiment import KEY, world_module
from benchmarks.report import fill, learning_rates_table
from benchmarks.worlds import synth_sae_bench
from sae_lens_c2r.evaluation.results import read_report

WORLDS = [module.name for module in iter_modules(worlds.__path__)]
NOT_KEPT = {"quick", "16k"}  # sizes
BEGUN = {"2k-fresh", "shipped", "longer", "wide"}  # that have some of their rows so far
CHOSEN = [  # the schedules that are taken, the best first
    ("language_model", "letters", ["letters"]),
    ("synth_sae_bench", "2k", ["2k"]),
    ("planted", "minilm", ["minilm-other-schedule", "minilm"]),
    ("minilm_text", "minilm-text", ["minilm-text"]),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("world", WORLDS)
def test_every_run_has_its_row_and_the_tables_show_the_rows(world: str) -> None:
    rows = rows_kept(world)
    found = Counter(rows[KEY].itertuples(index=False, name=None))
    sizes = world_module(world).SIZES
    runs, begun = (
        [run for name in names for size in sizes[name] for run in size.runs()]
        for names in (sizes.keys() - NOT_KEPT - BEGUN, sizes.keys() & BEGUN)
    )
    for chosen, name, _ in CHOSEN:
        if chosen == world:
            runs += [run for size in sizes[name] for run in size.runs_to_choose_lr()]
    # In some of the four worlds only, some were trained for longer.
    shortest = min(run.samples for run in runs) if world == "four_worlds" else math.inf
    needed = {astuple(run) for run in runs if run.samples <= shortest}
    assert needed <= set(found) <= set(map(astuple, [*runs, *begun]))
    assert set(found.values()) == {1}
    for name, tables in world_module(world).draw(rows).tables.items():
        shown = (RESULTS / world / f"{name}.md").read_text(encoding="utf-8")
        assert all(table in shown for table in tables.values())


@pytest.mark.exhaustive
@pytest.mark.parametrize(("world", "name", "best"), CHOSEN)
def test_the_best_learning_rates_are_taken(world: str, name: str, best: list[str]) -> None:
    sizes = world_module(world).SIZES
    table = learning_rates_table(rows_kept(world), [sizes[name][0].world])
    for line, taken in zip(table.splitlines()[2:][: len(best)], best, strict=True):
        [schedule] = sizes[taken]
        assert line.startswith(f"| {schedule.lr:g} | {schedule.decay:g} |")


@pytest.mark.exhaustive
def test_the_pages_show_the_rows_that_are_kept() -> None:
    tables, pages = evidence.tables(), [page.read_text("utf-8") for page in evidence.PAGES]
    assert [fill(page, tables) for page in pages] == pages
    assert all(f"<!-- begin {name} -->" in "".join(pages) for name in tables)
    assert all((evidence.DOCS / f"{name}.svg").is_file() for name in evidence.figures())


@pytest.mark.exhaustive
def test_what_a_headline_rests_on() -> None:
    """The hierarchies of the page of evidence, counted in another way."""
    rows = rows_kept("apart")
    found = rows[rows.world.str.contains("hierarchy")]
    found = found.pivot_table("absorption", ["world", "batch_size"], "strength")
    absorbs, lower = found[0.0] >= 0.05, found[5.0] < found[0.0]
    assert (len(found), lower.sum(), absorbs.sum(), (lower & absorbs).sum()) == (27, 27, 14, 14)
    assert (1 - found[5.0] / found[0.0])[absorbs].median() == pytest.approx(0.59, abs=0.005)


def test_a_page_has_a_place_for_every_table() -> None:
    page = "# A\n<!-- begin a b -->\nold\n<!-- end a b -->\ntext"
    assert fill(page, {"a b": "new"}) == page.replace("old", "new")
    with pytest.raises(KeyError, match="a b"):
        fill(page, {"c": ""})


def test_a_world_is_shared_or_drawn_anew_for_every_seed() -> None:
    kept, fresh = (synth_sae_bench.SIZES[name][0].runs() for name in ("2k", "2k-fresh"))
    assert {run.world_seed for run in kept} == {synth_sae_bench.KEPT_WORLD}
    assert {(run.seed, run.world_seed) for run in fresh} == {(n, n) for n in range(10)}
    assert Counter(run.k for run in fresh) == {8: 140, 12: 50}


README, EVIDENCE = (
    " ".join(Path(page).read_text(encoding="utf-8").split())
    for page in ("README.md", "docs/evidence.md")
)
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
    assert f"At k = 32 with SAELens's defaults, {price_told}" in README
    rows = [rows_of(*DATA[f"language model, k = {k}"]) for k in (10, 32)]
    same = [differences(each, Contrast("OrtSAE", "C2R", [0.25, 2.0])) for each in rows]
    dead = [each["dead_latents"] for each in same]
    first, second = (
        f"{100 * each.mean:.1f} ± {100 * each.half_width:.1f} points fewer" for each in dead
    )
    higher = -same[0]["composition"].mean
    assert f"{first} latents dead, with a composition {higher:.3f} higher" in EVIDENCE
    assert f"C2R 2 leaves {second} dead" in EVIDENCE
    means = rows[1].groupby(["method", "strength"])["full_absorption"].mean()
    absorbs = means["BatchTopK", 0], means["C2R", 5]
    assert f"lower ({absorbs[0]:.2f} \u2192 {absorbs[1]:.2f}), which is not clear" in EVIDENCE
    longer = rows_of("language_model/longer", 11_776_000, 10)
    rise = from_plain(longer)["C2R", 5.0]["absorption"]
    told = f"by {rise.mean:.3f} \u00b1 {rise.half_width:.3f} ("
    assert longer["seed"].nunique() == 4
    assert f"raises it {told}[four seeds]" in README
    means = longer.groupby("method")["composition"].mean()
    fall = f"falls from {means['BatchTopK']:.2f} to {means['C2R']:.2f}, and absorption rises"
    assert f"{fall} {told}" in EVIDENCE
    scored = read_report(RESULTS / "language_model" / "longer-absorption.json").saes
    for name, metric in (("full", "full_absorption"), ("fraction", "absorption")):
        found = {"BatchTopK": list[float](), "C2R": list[float]()}
        for sae in scored:
            found[str(sae.name).split("-")[2]].append(
                sae.evaluations["absorption"].metrics[metric]
            )
        assert max(found["C2R"]) < min(found["BatchTopK"])
        plain, ours = (f"{np.mean(each):.3f}" for each in found.values())
        assert f"{name} {plain} \u2192 {ours}" in EVIDENCE
        assert name != "full" or f"(two seeds, {plain} \u2192 {ours})" in README
    scores = {
        sae_id.rpartition("/")[2]: each
        for sae_id, each in metrics_of("smollm2-135m-layer-9", "absorption", "weights").items()
    }
    batchtopk = ("batchtopk_k32", "batchtopk_c2r_k32_lambda_2", "batchtopk_c2r_k32_lambda_5")
    matryoshka = ("matryoshka_batchtopk_k32", "matryoshka_batchtopk_c2r_k32")
    columns = (*batchtopk, "ort_k32", "ort_c2r_k32", *matryoshka)
    for name, metric in (("fraction", "absorption"), ("full", "full_absorption")):
        told = [f"{scores[sae][metric]:.2f}" for sae in columns]
        assert f"| {name} | {' | '.join(told)} |" in EVIDENCE
    plain, ours = (f"{scores[sae]['full_absorption']:.2f}" for sae in batchtopk[::2])
    assert f"rises in our release (one seed, {plain} \u2192 {ours})" in README
    pairs = {sae: each["pairs_above_0.7"] for sae, each in scores.items()}
    assert pairs["batchtopk_k32"] == 1
    assert not any(number for sae, number in pairs.items() if "c2r" in sae)
    told = "has one pair of latents with a cosine above 0.7, and those with C2R have none"
    assert f"BatchTopK {told}" in README


@pytest.mark.exhaustive
def test_the_verdict_tells_the_rows_of_synthetic_settings() -> None:
    [settings] = re.findall(r"absorbs 0\.05 or more in (\d+) settings", hierarchies_told())
    [fall, more] = re.findall(r"median of (\d+) %", hierarchies_told())
    [[least, most]] = re.findall(r"\(-(\d+) to ([\d,]+) %\)", hierarchies_told())
    assert (
        f"in all {settings} small hierarchies where it absorbs 0.05 or more, by a "
        f"median of {fall} %, for a median of {more} % more unexplained variance "
        f"(\N{MINUS SIGN}{least} to {most} %)" in README
    )
    tables = (RESULTS / "four_worlds" / "tables.md").read_text(encoding="utf-8")
    [line] = [line for line in tables.splitlines() if line.startswith("| Eq. (13) holds")]
    paper, *own = re.findall(r"\d+\.\d+(?= %|\N{NARROW NO-BREAK SPACE}±| ±)", line)
    lowest, highest = (100 * each(map(float, own)) for each in (min, max))
    assert (
        f"{float(paper):.0f} % of absorption pairs in the paper, {lowest:.0f} to {highest:.0f} "
        "% in synthetic data of our own" in README
    )


@pytest.mark.exhaustive
def test_the_cost_of_a_step_is_that_of_the_benchmark() -> None:
    rows = json.loads((RESULTS / "training_step-cuda.json").read_bytes())["rows"]
    rows = [row for row in rows if row["d_sae"] == 16_384]
    ratios = [row["step_over_plain"]["5"] for row in rows]
    [(d_in, batch_size)] = {(row["d_in"], row["batch_size"]) for row in rows}
    least, most = min(ratios), max(ratios)
    assert (
        f"takes [{least:.2f} to {most:.2f} times](docs/costs.md) as long as without C2R, in "
        f"bfloat16 with {d_in:,} dimensions and batches of {batch_size:,}" in README
    )
    rows = json.loads((RESULTS / "penalty-cuda.json").read_bytes())["rows"]
    [row] = [each for each in rows if (each["d_sae"], each["chunk"]) == (16_384, "8,192")]
    told = f"takes {row['training']['extra_MiB']:.0f} MiB of memory with batches of"
    assert f"a penalty {told} {row['batch_size']:,}" in README
    rows = json.loads((RESULTS / "training_step-cpu.json").read_bytes())["rows"]
    ratios = [row["step_over_plain"]["5"] for row in rows if row["chunk"] == "8,192"]
    costs = Path("docs/costs.md").read_text(encoding="utf-8")
    assert f"takes {min(ratios):.2f} to {max(ratios):.2f} times as long" in costs
    measured = set()
    for device, digits in (("cpu", 0), ("cuda", 1)):
        path = RESULTS / f"training_step-{device}.json"
        for row in json.loads(path.read_bytes())["rows"]:
            ms = [f"{row['ms'][each]:,.{digits}f} ms" for each in ("plain", "with")]
            ratios = [f"{ratio:.2f}" for ratio in row["step_over_plain"].values()]
            measured.add((f"{row['d_sae']:,}", *ms, *ratios))
    told = re.findall(
        r"\| ([\d,]+)(?: \| 5\d\d)? \| ([\d.,]+ ms) \| ([\d.,]+ ms)" + r" \| (\d\.\d\d)" * 3,
        costs,
    )
    assert len(told) == 7  # a line each
    assert set(told) <= measured
    for row in json.loads((RESULTS / "penalty-cuda.json").read_bytes())["rows"]:
        kinds = [row["naive"], row["training"]]
        ms = (f"{each['forward_ms'] + each['backward_ms']:.1f} ms" for each in kinds)
        memory = (f"{each['extra_MiB']:,.0f} MiB" for each in kinds)
        line = " | ".join((f"| {row['d_sae']:,}", row["chunk"], *ms, *memory))
        assert line in costs or row["chunk"] == "2,048" or row["d_sae"] == 16_384
    rows = json.loads((RESULTS / "penalty-cpu.json").read_bytes())["rows"]
    faster = [row["naive_over"]["training"] for row in rows]
    ours, naive = ([row[each]["extra_MiB"] for row in rows] for each in ("training", "naive"))
    assert (
        f"is {min(faster):.0f} to {max(faster):.0f} times as fast as Eq. (16) in plain "
        f"autograd, and takes {min(ours):.0f} to {max(ours):.0f} MiB in place of "
        f"{min(naive):.0f} to {max(naive):,.0f}" in costs
    )
