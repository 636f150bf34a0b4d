"""The benchmark on a transformer's activations with nothing planted into them."""

from dataclasses import asdict

import pytest
import torch
from sae_lens import StandardSAE, StandardSAEConfig

from benchmarks.minilm_text import world
from benchmarks.minilm_text.__main__ import (
    MINILM_TEXT,
    OTHER_SCHEDULE,
    PAGE,
    RESULTS,
    SEEDS,
    page_tables,
)
from benchmarks.minilm_text.world import World
from benchmarks.page import fill
from benchmarks.parallel import read
from benchmarks.synth_sae_bench.claims import METRICS
from benchmarks.synth_sae_bench.methods import runs_of, runs_to_choose_lr
from benchmarks.synth_sae_bench.runs import key
from benchmarks.synth_sae_bench.tables import learning_rates
from benchmarks.synth_sae_bench.world import Size

TINY = Size("tiny", (32,), 4096, pool=2048, evaluation=1024)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Noise, which stands for what a transformer computes."""
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            world,
            "text_activations",
            lambda *counts: (1 + torch.randn(count, world.D_IN) for count in counts),
        )
        found = World(TINY, tmp_path_factory.mktemp("samples"))
        found.generate(processes=1)
        patch.setattr(world, "text_activations", None)
        found.generate(processes=1)  # There already.
    return found


def test_every_token_comes_once_in_a_pass_and_in_an_order_of_the_seeds_own(text: World) -> None:
    def a_pass(seed: int) -> torch.Tensor:
        batches = text.batches(seed, batch_size=512)
        return torch.cat([next(batches) for _ in range(TINY.pool // 512)])

    first, again, other = a_pass(0), a_pass(0), a_pass(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(first.sort(dim=0).values, other.sort(dim=0).values)
    torch.testing.assert_close(first.norm(dim=1).mean().item(), world.D_IN**0.5)


def test_an_sae_that_copies_its_input_explains_all_of_it(text: World) -> None:
    config = StandardSAEConfig(d_in=world.D_IN, d_sae=2 * world.D_IN + 1, device="cpu")
    sae = StandardSAE(config)
    axes = torch.cat([torch.eye(world.D_IN), -torch.eye(world.D_IN)])
    never = torch.zeros(1, world.D_IN)
    with torch.no_grad():
        sae.W_dec.copy_(torch.cat([axes, axes[:1]]))
        sae.W_enc.copy_(torch.cat([axes, never]).T)
        sae.b_enc.zero_()
        sae.b_dec.zero_()
    found = text.evaluate(sae)
    assert found["explained_variance"] == pytest.approx(1)
    assert found["l0"] == pytest.approx(world.D_IN)
    assert found["dead_latents"] == pytest.approx(1 / config.d_sae)
    # One direction is there twice; all others are orthogonal to one another, or opposite.
    assert found["composition"] == pytest.approx(2 / config.d_sae)
    assert found["composition_of_live"] == pytest.approx(0)
    assert 0 < found["highest_jaccard"] < 1
    # The noise is about 1: most tokens have each axis, and few have its opposite.
    assert found["firing_with_another"] == pytest.approx(1 / 2)


def test_the_tables_have_what_is_measured(text: World) -> None:
    found = text.evaluate(StandardSAE(StandardSAEConfig(d_in=world.D_IN, d_sae=8)))
    shown = {
        *("explained_variance", "composition", "composition_of_live"),
        *("highest_jaccard", "firing_with_another", "dead_latents"),
    }
    assert shown == found.keys() & METRICS.keys()


def test_the_plan_has_both_halves_at_both_lengths() -> None:
    runs = runs_of(MINILM_TEXT, seeds=1)
    methods = {"BatchTopK", "C2R", "C2R, directions only", "C2R, activations only"}
    for samples in (MINILM_TEXT.training_samples, *MINILM_TEXT.other_training_samples):
        assert methods <= {run.method for run in runs if run.training_samples == samples}


def test_the_best_learning_rate_is_taken() -> None:
    results = read(RESULTS / f"{MINILM_TEXT.name}-learning-rates.jsonl")
    wanted = {key(asdict(run)) for run in runs_to_choose_lr(MINILM_TEXT)}
    assert {key(each) for each in results} == wanted
    first = learning_rates(results).splitlines()[2]
    assert first.startswith(f"| {MINILM_TEXT.lr:g} | {MINILM_TEXT.decay:g} |")


@pytest.mark.parametrize("size", [MINILM_TEXT, OTHER_SCHEDULE], ids=lambda size: size.name)
def test_the_results_that_are_kept_are_those_of_the_command(size: Size) -> None:
    wanted = {key(asdict(run)) for run in runs_of(size, seeds=SEEDS)}
    assert {key(result) for result in read(RESULTS / f"{size.name}.jsonl")} == wanted


def test_the_page_shows_the_results_that_are_kept() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, page_tables()) == page
