"""The results that are kept are those of the plans, and the pages show them."""

from dataclasses import asdict
from types import ModuleType
from typing import get_args

import pytest

from benchmarks.minilm_text import __main__ as of_text
from benchmarks.page import fill
from benchmarks.parallel import read
from benchmarks.planted import __main__ as of_planted
from benchmarks.study import __main__ as of_study
from benchmarks.study import runs as study_runs
from benchmarks.study.world import REGIMES
from benchmarks.synth_sae_bench import __main__ as of_synth
from benchmarks.synth_sae_bench.methods import runs_of, runs_to_choose_lr
from benchmarks.synth_sae_bench.runs import key
from benchmarks.synth_sae_bench.tables import WHICH_ONE, learning_rates
from benchmarks.synth_sae_bench.world import SIZES, Size
from benchmarks.transfer import __main__ as of_transfer
from benchmarks.transfer import sweep
from benchmarks.transfer.rules import FACTORS, LAMBDAS
from sae_lens_c2r.penalties.gates import Gate
from sae_lens_c2r.releases.files import find_release, read_release

SWEEPS = [
    *((of_synth, SIZES[name]) for name in ("2k", "4k")),
    *((of_planted, size) for size in (of_planted.MINILM, of_planted.OTHER_SCHEDULE)),
    *((of_text, size) for size in (of_text.MINILM_TEXT, of_text.OTHER_SCHEDULE)),
]
CHOSEN = [  # the schedules that are taken, the best first
    (of_synth, [SIZES["2k"]]),
    (of_planted, [of_planted.OTHER_SCHEDULE, of_planted.MINILM]),
    (of_text, [of_text.MINILM_TEXT]),
]


@pytest.mark.parametrize(("benchmark", "size"), SWEEPS)
def test_a_sweep_of_methods_has_all_its_runs(benchmark: ModuleType, size: Size) -> None:
    wanted = {key(asdict(run)) for run in runs_of(size, seeds=benchmark.SEEDS)}
    results = read(benchmark.RESULTS / f"{size.name}.jsonl")
    assert {key(result) for result in results} == wanted


@pytest.mark.parametrize(("benchmark", "sizes"), CHOSEN)
def test_the_best_learning_rates_are_taken(benchmark: ModuleType, sizes: list[Size]) -> None:
    results = read(benchmark.RESULTS / f"{sizes[-1].name}-learning-rates.jsonl")
    wanted = {key(asdict(run)) for run in runs_to_choose_lr(sizes[-1])}
    assert {key(each) for each in results} == wanted
    for row, size in zip(learning_rates(results).splitlines()[2:], sizes, strict=False):
        assert row.startswith(f"| {size.lr:g} | {size.decay:g} |")


def test_the_study_has_all_its_runs_and_some_that_are_longer() -> None:
    first, longer = (
        {
            study_runs.key(vars(run))
            for regime in REGIMES.values()
            for run in of(regime, seeds=len(study_runs.SEEDS), steps=study_runs.STEPS)
        }
        for of in (study_runs.runs_of, study_runs.longer_runs_of)
    )
    found = [study_runs.key(result) for result in read(of_study.RESULTS / "runs.jsonl")]
    assert first <= set(found) <= first | longer
    assert len(found) == len(set(found))


def test_the_transfer_of_lambda_is_swept_for_every_gate_that_has_a_rule() -> None:
    assert set(LAMBDAS) == set(FACTORS) == set(get_args(Gate)) - {"none"}
    wanted = {gate: {*sweep.hierarchy_runs(gate), *sweep.minilm_runs(gate)} for gate in LAMBDAS}
    relu, excess = wanted.values()
    assert relu & excess == {run for run in relu if run.lambda_ == 0}  # trained once for both
    results = {sweep.key(result) for result in read(of_transfer.RUNS)}
    assert results <= {sweep.key(asdict(run)) for run in relu | excess}
    assert not sweep.missing([*relu, *excess], of_transfer.RUNS)


@pytest.mark.parametrize("benchmark", [of_synth, of_planted, of_text, of_study, of_transfer])
def test_the_page_shows_the_results_that_are_kept(benchmark: ModuleType) -> None:
    if benchmark is of_study:
        found = of_study.all_tables(read(of_study.RESULTS / "runs.jsonl"))
        assert "not measured" not in of_study.PAGE.read_text(encoding="utf-8")
    else:
        tables = benchmark.tables if benchmark is of_transfer else benchmark.page_tables
        found = tables()
    shown = {benchmark.PAGE: found}
    if benchmark is of_synth:
        shown[of_synth.README] = {WHICH_ONE: found[WHICH_ONE]}
    for page, of_page in shown.items():
        text = page.read_text(encoding="utf-8")
        assert fill(text, of_page) == text


def test_a_page_has_a_place_for_every_table() -> None:
    page = "# A\n<!-- begin a b -->\nold\n<!-- end a b -->\ntext"
    assert fill(page, {"a b": "new"}) == page.replace("old", "new")
    with pytest.raises(ValueError, match="marks for"):
        fill(page, {"a b": "new", "c": ""})


@pytest.mark.parametrize(("name", "divisor"), [("4k", 4), ("2k", 8)])
def test_small_sizes_are_the_published_one_with_every_count_divided(
    name: str, divisor: int
) -> None:
    whole, part = (
        read_release(find_release(f"synth-sae-bench-{size}")) for size in ("16k", name)
    )
    config = dict(whole.synthetic_model.config)
    for count in ("num_features", "hidden_dim"):
        config[count] //= divisor
    roots = config["hierarchy"]["total_root_nodes"] // divisor
    config["hierarchy"] = {**config["hierarchy"], "total_root_nodes": roots}
    assert part.synthetic_model.config == config
    for width in ("d_in", "d_sae"):
        assert part.sae[width] * divisor == whole.sae[width]
    assert part.runner["batch_size"] * divisor == whole.runner["batch_size"]
    size = SIZES[name]
    assert part.synthetic_model.training_samples == size.training_samples
    steps = size.training_samples // size.batch_size
    of_size = {"batch_size": size.batch_size, "lr": size.lr, "autocast_sae": size.autocast}
    assert of_size.items() <= {"autocast_sae": False, **part.runner}.items()
    assert (part.sae["k"], part.runner["lr_decay_steps"]) == (
        size.ks[0],
        int(size.decay * steps),
    )
