"""The numbers in the sentences of README and of the page of evidence are those of the rows."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.__main__ import RESULTS
from benchmarks.compare import Contrast, Interval, over_seeds
from benchmarks.differences import DATA, Differences, differences, from_plain, rows_of
from sae_lens_c2r.evaluation.results import read_report

pytestmark = pytest.mark.exhaustive
README, EVIDENCE, MADE, COSTS = (
    " ".join(Path(page).read_text(encoding="utf-8").split())
    for page in (
        "README.md",
        "docs/evidence.md",
        "docs/how-the-evidence-was-made.md",
        "docs/costs.md",
    )
)
CARD = Path("hub_cards", "smollm2-135m-layer-9")
OF_CARD = ["batchtopk_k32", "batchtopk_c2r_k32_lambda_2", "batchtopk_c2r_k32_lambda_5"]
K10, K32 = (rows_of(*DATA[f"language model, k = {k}"]) for k in (10, 32))
LONGER = rows_of("language_model/longer", 11_776_000, 10)
MINUS, ARROW = "\N{MINUS SIGN}", "\N{RIGHTWARDS ARROW}"


def of(rows: pd.DataFrame, measure: str, method: str = "BatchTopK", strength: float = 0) -> Any:
    """Return a measure of a method, by seed."""
    chosen = rows[(rows.method == method) & (rows.strength == strength)]
    return chosen.set_index("seed")[measure].sort_index()


def c2r(rows: pd.DataFrame, strength: float) -> Differences:
    """Return the differences of C2R from BatchTopK."""
    return from_plain(rows)["C2R", strength]


def more_lost(rows: pd.DataFrame, strength: float) -> Interval:
    """Return by how many percent more of the loss is not recovered with C2R."""
    plain, ours = (
        1 - of(rows, "loss_recovered"),
        1 - of(rows, "loss_recovered", "C2R", strength),
    )
    return Interval.of(100 * (ours - plain) / plain)


def unpaired(rows: pd.DataFrame, measure: str) -> float:
    """Return half of the interval of C2R 5 less BatchTopK, of seeds that are no pairs."""
    parts = [of(rows, measure, "C2R", 5), of(rows, measure)]
    error = np.sqrt(sum(each.var() / len(each) for each in parts))
    freedom = sum(map(len, parts)) - 2
    return float(stats.t.ppf(0.975, freedom) * error)


def way_to_chance(rows: pd.DataFrame, strength: float) -> str:
    """Return how far composition goes from BatchTopK's to chance, in percent."""
    left = of(rows, "above_chance", "C2R", strength).mean() / of(rows, "above_chance").mean()
    return f"{100 * (1 - left):.0f} %"


def of_card(name: str) -> dict[str, dict[str, Any]]:
    """Return an evaluation's metrics of the SAEs of the card, by the ends of their ids."""
    saes = json.loads((CARD / "sae-lens-c2r.json").read_bytes())["saes"]
    return {
        sae_id.rpartition("/")[2]: sae["evaluations"][name]["metrics"]
        for sae_id, sae in saes.items()
    }


def full_absorption(path: Path, of_letters: str = "") -> pd.DataFrame:
    """Return SAEBench's score, or that of letters, with a column for each SAE."""
    found, key = {}, f"{of_letters}full_absorption"
    for sae in read_report(path).saes:
        scores = sae.metrics_of("absorption").items()
        of_key = {name: score for name, score in scores if name.startswith(key)}
        found[str(sae.name).rpartition("/")[2]] = of_key
    return pd.DataFrame(found)


def test_what_c2r_brings_and_costs_on_the_language_model() -> None:
    assert way_to_chance(K32, 2) == "100 %"
    assert 50 < float(way_to_chance(K10, 2).split()[0]) < 90
    assert "falls most (k = 10) or all (k = 32) of the way" in README
    for rows in (K10, K32):
        found = c2r(rows, 2)
        told = f"{found['percent'].mean:.0f} % more unexplained variance, and "
        assert f"{told}{100 * found['dead_latents'].mean:.0f} points more dead" in README
    late = c2r(rows_of("language_model/letters", 2_048_000, 32), 2)
    price, dead = late["percent"].mean, 100 * late["dead_latents"].mean
    assert f"SAELens's defaults, the cost is {price:.0f} % and {dead:.0f} points" in README
    wide = rows_of("language_model/wide", 11_776_000, 10)
    assert (
        f"goes {way_to_chance(K10, 5)} of the way from BatchTopK's to chance in 2 M tokens "
        f"(k = 10), {way_to_chance(LONGER, 5)} in 11.8 M, and {way_to_chance(wide, 5)} with"
        in EVIDENCE
    )
    losses = [f"{more_lost(*each).mean:.0f} %" for each in ((K10, 2), (K10, 5), (K32, 5))]
    told = "grows at k = 10 by {} at \u03bb = 2 and {} at \u03bb = 5, at k = 32 by {}"
    assert told.format(*losses) in EVIDENCE
    classes = (of(K32, "class_f1", *each).mean() for each in ((), ("C2R", 5)))
    assert f"\u03bb = 5 ({f' {ARROW} '.join(f'{each:.2f}' for each in classes)})" in EVIDENCE
    saes = of_card("sae_lens")
    scores = [saes[f"batchtopk{each}"]["kl_score"] for each in ("_k32", "_c2r_k32_lambda_5")]
    lacks = 100 * ((1 - scores[1]) / (1 - scores[0]) - 1)
    told = f"by {lacks:.0f} % ({scores[0]:.3f} {ARROW} {scores[1]:.3f}, one training)"
    assert f"what the KL score lacks {told}" in EVIDENCE
    costs = [c2r(rows_of(*DATA[name]), 5)["percent"].mean for name in list(DATA)[:4]]
    assert f"rises by {min(costs):.0f} to {max(costs):.0f} % on the language" in EVIDENCE


def test_what_longer_training_brings() -> None:
    found, n_seeds = c2r(LONGER, 5), LONGER["seed"].nunique()
    assert f"k = 10, {['two', 'three', 'four', 'five'][n_seeds - 2]} seeds, at" in EVIDENCE
    lost = more_lost(LONGER, 5)
    classes = of(LONGER, "class_f1", "C2R", 5) - of(LONGER, "class_f1")
    told = (
        f"composition {of(LONGER, 'composition').mean():.2f} {ARROW} "
        f"{of(LONGER, 'composition', 'C2R', 5).mean():.2f}, unexplained variance "
        f"{found['percent'].mean:+.1f} ± {found['percent'].half_width:.1f} %, loss not "
        f"recovered {lost.mean:+.0f} ± {lost.half_width:.0f} %, co-firing "
        f"{found['highest_jaccard'].signed}, F1 of token classes "
        f"{Interval.of(classes).signed}, dead latents {found['dead_latents'].signed}"
    )
    assert told.replace("classes -", f"classes {MINUS}") in EVIDENCE
    assert f"at \u03bb = 5, {lost.mean:.0f} % more of the loss is not recovered" in README
    assert not abs(found["found"].mean) > found["found"].half_width  # "no longer rises"


def test_absorption_is_told_with_its_doubt() -> None:
    most = c2r(K10, 5)["absorption"]
    excluded = (most.half_width - most.mean) / of(K10, "absorption").mean()
    assert f"rules out a fall of more than {100 * excluded:.0f} %" in EVIDENCE
    plain, ours = of(K32, "absorption"), of(K32, "absorption", "C2R", 5)
    fall = c2r(K32, 5)["absorption"]
    assert ((ours - plain) < 0).sum() == 5
    widths = f"paired ± {fall.half_width:.4f}, unpaired ± {unpaired(K32, 'absorption'):.4f}"
    told = f"by {-fall.mean:.3f} ({widths})"
    assert (
        f"in all five seeds ({plain.mean():.2f} {ARROW} {ours.mean():.2f}), {told}" in EVIDENCE
    )
    rise = of(LONGER, "absorption", "C2R", 5) - of(LONGER, "absorption")
    assert (rise > 0).all()
    doubt, quarter = unpaired(LONGER, "absorption"), of(LONGER, "absorption").mean() / 4
    told = f"{rise.mean():.3f} ± {Interval.of(rise).half_width:.3f} (unpaired ± {doubt:.3f}"
    assert f"rises in all five seeds, by {told}, not clear)" in EVIDENCE
    assert "falls in all five seeds with k = 32, and rises in all five of longer" in README
    assert -quarter < rise.mean() - doubt < 0  # the criterion excludes a fall by a quarter
    late = c2r(rows_of("language_model/letters", 2_048_000, 32), 5)["absorption"]
    assert f"SAELens's defaults it does not ({late.signed})" in EVIDENCE
    names = ("evaluation.json", "absorption-seed-1.json")
    sets = [full_absorption(CARD / name, "by_letter.")[OF_CARD] for name in names]
    scores = [each[OF_CARD[0]].mean() for each in sets]
    assert "BatchTopK has {:.2f} and {:.2f}.".format(*scores) in EVIDENCE
    less = [each.sub(each[OF_CARD[0]], axis=0) for each in sets]
    forms = ("2 differs by {} and {},", "5 by {} and {};")
    for sae, told in zip(OF_CARD[1:], forms, strict=True):
        pairs = [Interval.of(each[sae]) for each in less]
        shown = [f"{each.mean:+.2f} ± {each.half_width:.2f}" for each in pairs]
        assert told.format(*shown).replace("-", MINUS) in EVIDENCE
        assert all(abs(each.mean) < each.half_width for each in pairs)  # undecided
    of_2 = [Interval.of(each[OF_CARD[1]]) for each in less]
    for each, score in zip(of_2, scores, strict=True):  # The paper's fall is undecided.
        assert each.mean - each.half_width < -0.7 * score
    plain, *others = full_absorption(CARD / "absorption-earlier.json")[OF_CARD].iloc[0]
    told = "has {:.2f}, {:+.2f} and {:+.2f}.".format(plain, *(each - plain for each in others))
    assert f"an earlier set {told}".replace("-", MINUS) in EVIDENCE
    longer = read_report(RESULTS / "language_model" / "longer-absorption.json").saes
    found, spread = {"BatchTopK": list[float](), "C2R": list[float]()}, []
    for sae in longer:
        score = sae.evaluations["absorption"].metrics
        found[str(sae.name).split("-")[2]].append(score["full_absorption"])
        spread.append(score["mean.std_dev_full_absorption_score"])
    assert max(found["C2R"]) < min(found["BatchTopK"])
    means = f" {ARROW} ".join(f"{np.mean(each):.3f}" for each in found.values())
    most = max(spread) / 26**0.5
    assert f"C2R 5 scores lower: {means}, with standard errors to {most:.3f}" in EVIDENCE


def test_what_latents_read() -> None:
    rows, both = rows_of("language_model/directions", 2_048_000, 10), ("C2R by both", 2)
    points = ((), ("C2R", 2), ("C2R", 5), both)
    read = [of(rows, "encoder_composition", *point) for point in points]
    assert all(len(each) == 5 for each in read)
    plain, two, five, lowered = (f"{each.mean():.3f}" for each in read)
    chance = f"where chance is {rows.chance_composition.mean():.3f}"
    assert f"{plain} for BatchTopK, {two} for C2R 2 and {five} for C2R 5, {chance}" in EVIDENCE
    assert f"(k = 10: {plain} {ARROW} {two}), {chance}" in README
    counts = [of(rows, "firing_pairs_above_0.9", *point) for point in points]
    more = [Interval.of(each - counts[0]) for each in counts[1:3]]
    assert all(0 < each.mean < each.half_width for each in more)  # "not clearly more"
    pairs = [f"{each.mean():.1f}" for each in counts]
    assert f"0.9) are {pairs[0]}, {pairs[1]} and {pairs[2]}, not clearly more" in EVIDENCE
    assert f"lowers encoder composition to {lowered} (\u03bb = 2)" in EVIDENCE
    measures = ["highest_jaccard", "firing_pairs_above_0.9", "dead_latents"]
    for strength in (5, 2):
        equal = f"the explained_variance of C2R {strength}"
        gaps = Contrast("C2R by both", "C2R", [equal, strength]).by_seed_and_k(rows, measures)
        together, alike, dead = over_seeds(gaps).values()
        assert together.count == 4
        assert all(each.mean + each.half_width > 0 for each in (together, alike))
        assert dead.mean > dead.half_width
    assert f"and {100 * dead.mean:.1f} ± {100 * dead.half_width:.1f} points more" in EVIDENCE
    assert f"co-firing is not clearly lower ({together.signed}), pairs" in MADE
    assert f"clearly fewer ({alike.mean:+.1f} ± {alike.half_width:.1f})" in MADE
    on_text = of_card("sae_lens")
    pairs = [f"{on_text[sae]['co_firing_pairs_above_0.9']:.0f}" for sae in OF_CARD]
    assert f"one training each, {', '.join(pairs[:2])} and {pairs[2]}." in EVIDENCE
    assert f"{pairs[0]} without C2R, {pairs[1]} at \u03bb = 2 (k = 32, one" in README


def test_known_features_and_the_other_methods() -> None:
    planted = rows_of(*DATA["planted, 1M tokens"])
    plain, two, five = (
        f"{of(planted, 'splitting', *each).mean():.2f}" for each in ((), ("C2R", 2), ("C2R", 5))
    )
    assert f"({plain} {ARROW} {two} latents)" in README
    assert f"features {plain} {ARROW} {five} latents each in 1 M tokens, unclear" in EVIDENCE
    later = c2r(rows_of(*DATA["planted, 2M tokens"]), 5)["splitting"]
    assert abs(later.mean) < later.half_width
    worlds = [rows_of(*DATA[name]) for name in list(DATA)[7:11]]
    assert all(c2r(rows, 5)["splitting"].mean < 0 for rows in worlds)
    falls = [
        (of(rows, "f1", "TopK + C2R", 5) - of(rows, "f1", "TopK")).mean()
        for rows in (
            rows[rows.k == rows[rows.method == "TopK + C2R"].k.iloc[0]] for rows in worlds
        )
    ]
    assert f"by {-max(falls):.2f} to {-min(falls):.2f})" in EVIDENCE
    large = rows_of(*DATA["SynthSAEBench, twice the size"])
    fall = differences(large, Contrast("OrtSAE 0.25 + C2R", "OrtSAE", [5.0, 0.25]))["found"]
    assert f"F1 falls by {-fall.mean:.3f} ± {fall.half_width:.3f}" in EVIDENCE
    same = [differences(rows, Contrast("OrtSAE", "C2R", [0.25, 2.0])) for rows in (K10, K32)]
    first, second = (
        f"{100 * each['dead_latents'].mean:.1f} ± {100 * each['dead_latents'].half_width:.1f} "
        "points fewer"
        for each in same
    )
    higher = f"with a composition {-same[0]['composition'].mean:.3f} higher"
    assert f"{first} latents dead at k = 10, {higher}, and {second} at k = 32" in EVIDENCE
    planted = rows_of(*DATA["planted, 2M tokens"])
    pairs = {
        name: f"{of(planted, name).mean():.2f} {ARROW} {of(planted, name, 'C2R', 5).mean():.2f}"
        for name in ("absorption", "found")
    }
    found, (before, after) = c2r(planted, 5), pairs["absorption"].split(f" {ARROW} ")
    assert (
        f"absorption from {before} to {after}, for {found['percent'].mean:.0f} % more "
        f"unexplained variance, {100 * found['dead_latents'].mean:.0f} points more dead "
        f"latents, and fewer features found ({pairs['found']})" in EVIDENCE
    )
    tables = (RESULTS / "four_worlds" / "tables.md").read_text(encoding="utf-8")
    [line] = [line for line in tables.splitlines() if line.startswith("| Eq. (13) holds")]
    paper, *own = re.findall(r"\d+\.\d+(?= %|\N{NARROW NO-BREAK SPACE}±| ±)", line)
    lowest, highest = (100 * each(map(float, own)) for each in (min, max))
    assert (
        f"{float(paper):.0f} % of absorption pairs in the paper, {lowest:.0f} to {highest:.0f} "
        "% in synthetic data of our own" in README
    )


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
    assert f"takes {min(ratios):.2f} to {max(ratios):.2f} times as long" in COSTS
    measured = set()
    for device, digits in (("cpu", 0), ("cuda", 1)):
        path = RESULTS / f"training_step-{device}.json"
        for row in json.loads(path.read_bytes())["rows"]:
            ms = [f"{row['ms'][each]:,.{digits}f} ms" for each in ("plain", "with")]
            ratios = [f"{ratio:.2f}" for ratio in row["step_over_plain"].values()]
            measured.add((f"{row['d_sae']:,}", *ms, *ratios))
    told = re.findall(
        r"\| ([\d,]+)(?: \| 5\d\d)? \| ([\d.,]+ ms) \| ([\d.,]+ ms)" + r" \| (\d\.\d\d)" * 3,
        COSTS,
    )
    assert len(told) == 7  # a line each
    assert set(told) <= measured
    for row in json.loads((RESULTS / "penalty-cuda.json").read_bytes())["rows"]:
        kinds = [row["naive"], row["training"]]
        ms = (f"{each['forward_ms'] + each['backward_ms']:.1f} ms" for each in kinds)
        memory = (f"{each['extra_MiB']:,.0f} MiB" for each in kinds)
        line = " | ".join((f"| {row['d_sae']:,}", row["chunk"], *ms, *memory))
        assert line in COSTS or row["chunk"] == "2,048" or row["d_sae"] == 16_384
    rows = json.loads((RESULTS / "penalty-cpu.json").read_bytes())["rows"]
    faster = [row["naive_over"]["training"] for row in rows]
    ours, naive = ([row[each]["extra_MiB"] for row in rows] for each in ("training", "naive"))
    assert (
        f"is {min(faster):.0f} to {max(faster):.0f} times as fast as Eq. (16) in plain "
        f"autograd, and takes {min(ours):.0f} to {max(ours):.0f} MiB in place of "
        f"{min(naive):.0f} to {max(naive):,.0f}" in COSTS
    )


def test_the_alternatives_and_the_other_settings() -> None:
    found = {name: from_plain(rows_of(*about)) for name, about in DATA.items()}
    text = [each for name, each in found.items() if re.match("language|MiniLM$|planted", name)]
    shares = [
        each["OrtSAE", 0.25]["percent"].mean / each["C2R", 5]["percent"].mean for each in text
    ]
    assert 0.5 < min(shares) < max(shares) < 0.7
    assert "costs half to two thirds as much as C2R 5" in EVIDENCE
    nested = {name: each.get(("Matryoshka", 0.0)) for name, each in found.items()}
    synth, text = (
        [each["percent"].mean for name, each in nested.items() if each and re.match(kind, name)]
        for kind in ("Synth", "language|planted")
    )
    rows = rows_of(*DATA["SynthSAEBench"])
    f1 = [f"{rows[rows.method == each].f1.mean():.2f}" for each in ("BatchTopK", "Matryoshka")]
    told = f"({f1[0]} {ARROW} {f1[1]}), for {min(synth):.0f} to {max(synth):.0f} % more"
    assert (
        f"{told} unexplained variance; on text, {min(text):.0f} to {max(text):.0f} %."
        in EVIDENCE
    )
    rises = [each["C2R", 5]["highest_jaccard"] for each in found.values()]
    clear = [each.mean for each in rises if each.mean > each.half_width]
    measured = np.isfinite([each.mean for each in rises]).sum()
    told = f"in {len(clear)} of the {measured} data sets where it was measured"
    assert f"{told}, by {min(clear):.3f} to {max(clear):.3f}" in EVIDENCE
    fresh = [
        rows_of("synth_sae_bench/2k-fresh", 4_000_000, k, kept_by="apart") for k in (8, 12)
    ]
    eight, twelve = (c2r(rows, 5)["found"] for rows in fresh)
    told = f"raises F1 by {eight.mean:.3f} ± {eight.half_width:.3f} with k = 8; with 12 by"
    assert f"{told} {twelve.mean:.3f} ± {twelve.half_width:.3f}" in EVIDENCE
    large = found["SynthSAEBench, twice the size"]["C2R", 20]["found"].mean
    assert f"twice the size, F1 falls by {-large:.2f}" in EVIDENCE
    first = rows_of(*DATA["planted, 1M tokens"])
    other = rows_of("planted/minilm-other-schedule", 1_000_000)
    plain, c2r_5 = (of(other, "found", *each).mean() for each in ((), ("C2R", 5)))
    lost = [of(each, "unexplained").mean() for each in (first, other)]
    assert abs(np.subtract(*lost)) < 0.005  # of all variance, the smallest of interest
    dead = 100 * c2r(other, 5)["dead_latents"].mean
    absorbed = [f"{of(each, 'absorption').mean():.2f}" for each in (other, first)]
    assert (
        f"BatchTopK explains as much and absorbs {' instead of '.join(absorbed)}; there C2R "
        f"adds dead latents ({dead:.0f} points) and finds fewer features ({plain:.2f} {ARROW} "
        f"{c2r_5:.2f})" in EVIDENCE
    )
