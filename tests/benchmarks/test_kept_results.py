"""The rows that are kept are those of the plans; pages and cards show them, and no others.

Most are `exhaustive`: only who changes the rows, or what reads them, need run them.
"""

import math
from collections import Counter
from dataclasses import astuple
from pkgutil import iter_modules

import pytest

from benchmarks import evidence, worlds
from benchmarks.__main__ import RESULTS
from benchmarks.differences import rows_kept
from benchmarks.experiment import KEY, world_module
from benchmarks.report import fill, learning_rates_table
from benchmarks.worlds import synth_sae_bench

WORLDS = [module.name for module in iter_modules(worlds.__path__)]
NOT_KEPT = {"quick", "16k"}  # sizes
# Sizes that have some of their rows so far.
BEGUN = {"2k-fresh", "shipped", "wide", "directions"}
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
