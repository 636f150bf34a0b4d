"""The benchmark of features that are planted into a transformer's activations."""

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import pytest
import torch
from sae_lens import StandardSAE, StandardSAEConfig

from benchmarks.page import fill
from benchmarks.parallel import read
from benchmarks.planted import world
from benchmarks.planted.__main__ import (
    METHODS,
    MINILM,
    OTHER_SCHEDULE,
    PAGE,
    RESULTS,
    SEEDS,
    page_tables,
)
from benchmarks.planted.tables import same_children_table
from benchmarks.planted.world import FOUND, SHARE, World
from benchmarks.statistics import Interval
from benchmarks.synth_sae_bench.claims import metrics_of
from benchmarks.synth_sae_bench.methods import METHODS as ALL_METHODS
from benchmarks.synth_sae_bench.methods import runs_of, runs_to_choose_lr
from benchmarks.synth_sae_bench.runs import key
from benchmarks.synth_sae_bench.tables import learning_rates, tables
from benchmarks.synth_sae_bench.world import Size
from sae_lens_c2r.analysis.recovery import Edge
from tests.forkserver import run as run_python

TINY = Size("tiny", (32,), 4096, 4096, evaluation=4096, methods=METHODS)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Features planted into noise, which stands for what a transformer computes."""
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "text_activations", lambda *counts: map(noise, counts))
        found = World(TINY, tmp_path_factory.mktemp("samples"))
        found.generate(processes=1)
    return found


AXES = torch.randn(8, world.D_IN, generator=torch.Generator().manual_seed(123))


def noise(n_samples: int) -> torch.Tensor:
    """Text that varies along a few axes, which an encoder can be blind to."""
    return 1 + torch.randn(n_samples, len(AXES)) @ AXES


def sae_of_features(planted: World, *, absorbed: Sequence[Edge] = ()) -> StandardSAE:
    """A latent for each planted feature, read out exactly, and blind to the text.

    An absorbed child is taken from its parent's latent twice over.
    """
    vectors = planted.features.feature_vectors
    W_enc = torch.linalg.pinv(torch.cat([vectors, AXES]))[:, : len(vectors)].clone()
    for parent, child in absorbed:
        W_enc[:, parent] -= 2 * W_enc[:, child]
    config = StandardSAEConfig(
        d_in=world.D_IN, d_sae=len(vectors), apply_b_dec_to_input=True, device="cpu"
    )
    sae = StandardSAE(config)
    factor = float((planted.folder / "factor.txt").read_text())
    text = torch.from_numpy(np.load(planted.paths["held_out"]))
    with torch.no_grad():
        sae.W_dec.copy_(vectors)
        sae.W_enc.copy_(W_enc)
        sae.b_enc.fill_(-0.1 * factor)
        sae.b_dec.copy_(text.mean(dim=0))
    return sae


def test_the_planted_features_have_their_share_of_the_variance(planted: World) -> None:
    text, features = (np.load(planted.paths[name]) for name in ("text", "planted"))
    of_text, of_features = text.var(axis=0).sum(), features.var(axis=0).sum()
    assert of_features / (of_text + of_features) == pytest.approx(SHARE, rel=0.02)
    assert np.linalg.norm(text, axis=1).mean() == pytest.approx(world.D_IN**0.5, rel=1e-4)


def test_samples_are_the_same_ones_for_every_method_and_others_for_every_seed(
    planted: World,
) -> None:
    first, again, other = (next(planted.batches(seed, 1024)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_pass_has_other_features_at_a_token_than_the_last(planted: World) -> None:
    batches = planted.batches(0, 4096)
    first, second = next(batches), next(batches)
    assert first.mean(dim=0).allclose(second.mean(dim=0), atol=1e-4)  # of the same parts
    again = (torch.cdist(first, second) < 1e-3).any(dim=1)
    assert again.float().mean() < 0.01


def test_a_latent_for_each_feature_absorbs_nothing_and_a_silent_one_all(
    planted: World,
) -> None:
    whole = planted.evaluate(sae_of_features(planted))
    absorbed = planted.evaluate(sae_of_features(planted, absorbed=planted.edges))
    for found in (whole, absorbed):
        assert found["cosine_with_features"] == pytest.approx(1)
        assert found["features_found"] == found["parents_found"] == found["split"] == 1
        assert found["children_found"] == 1
        assert found["absorption_by_found_children"] == found["absorption"]
    assert whole["absorption"] == pytest.approx(0, abs=1e-3)
    assert absorbed["absorption"] == pytest.approx(1, abs=1e-3)
    # It has the planted features but for what the bias takes of each, and none of the text.
    assert 0.2 * SHARE < whole["explained_variance"] < 1.1 * SHARE
    assert whole["real_explained_variance"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("in_its_parents_latent", [False, True])
def test_children_that_are_not_found_tell_nothing_of_what_others_absorb(
    planted: World, in_its_parents_latent: bool
) -> None:
    absorbed, lost = planted.edges[::2], planted.edges[1::4]  # one child of each parent
    sae = sae_of_features(planted, absorbed=absorbed)
    vectors = planted.features.feature_vectors
    with torch.no_grad():
        for parent, child in lost:
            sae.W_dec[child] = torch.randn(world.D_IN)
            if in_its_parents_latent:
                sae.W_dec[parent] += 0.7 * vectors[child]
                cosine = torch.cosine_similarity(sae.W_dec[parent], vectors[child], dim=0)
                assert cosine > FOUND
    found = planted.evaluate(sae)
    of_edges = found["absorption_of_edges"]
    assert [each is None for each in of_edges] == [edge in lost for edge in planted.edges]
    assert found["children_found"] == 0.75
    assert found["absorption"] == pytest.approx(1 / 2, abs=1e-2)
    assert found["absorption_by_found_children"] == pytest.approx(2 / 3, abs=1e-2)


def test_the_same_children_are_compared_in_both_saes_of_a_seed() -> None:
    def result(
        method: str, strength: float, seed: int, *rates: float | None, samples: int = 4096
    ) -> dict:
        about = {"method": method, "strength": strength, "seed": seed}
        return {**about, "training_samples": samples, "absorption_of_edges": list(rates)}

    results = [
        *(result("C2R", 5, seed, 0.1 * seed, 0.0, None, 0.3) for seed in (1, 2, 3)),
        result("C2R", 5, 4, None, None, None, 0.3),
        *(result("BatchTopK", 0.0, seed, 0.4, 0.1, 0.9, None) for seed in (1, 2, 4)),
        *(result("BatchTopK", 0.0, seed, 1, 1, 1, 1, samples=8192) for seed in (1, 2, 4)),
    ]
    expected = Interval.of([-0.2, -0.15])
    row = f"| C2R 5 | 1 | {expected.mean:+.3f} ± {expected.half_width:.3f} |"
    assert same_children_table(TINY, results).splitlines()[2:] == [row]


def test_its_tables_have_what_it_measures_and_no_published_order(planted: World) -> None:
    measured = planted.evaluate(sae_of_features(planted))
    about = {"k": 32, "training_samples": TINY.training_samples}
    results = [
        {"method": method, "strength": strength, "seed": seed, **about, **measured}
        for method, strengths in METHODS.items()
        for strength in strengths
        for seed in (0, 1)
    ]
    assert "f1" not in metrics_of(results)
    found = tables(TINY, results)
    assert set(found) == {"questions", "methods"}
    assert "| C2R | OrtSAE | at 5 and 0.25 |" in found["questions"]
    runs = {(run.method, run.strength) for run in runs_of(TINY, seeds=1)}
    assert runs == {(each["method"], each["strength"]) for each in results}


def test_its_strengths_are_some_of_those_that_are_shown() -> None:
    for name, strengths in METHODS.items():
        assert set(strengths) <= set(ALL_METHODS[name].strengths)


@pytest.mark.parametrize("size", [MINILM, OTHER_SCHEDULE], ids=lambda size: size.name)
def test_the_results_that_are_kept_are_those_of_the_command(size: Size) -> None:
    wanted = {key(asdict(run)) for run in runs_of(size, seeds=SEEDS)}
    assert {key(result) for result in read(RESULTS / f"{size.name}.jsonl")} == wanted


def test_the_two_best_learning_rates_are_shown() -> None:
    results = read(RESULTS / f"{MINILM.name}-learning-rates.jsonl")
    wanted = {key(asdict(run)) for run in runs_to_choose_lr(MINILM)}
    assert {key(each) for each in results} == wanted
    rows = learning_rates(results).splitlines()[2:4]
    for row, size in zip(rows, (OTHER_SCHEDULE, MINILM), strict=True):
        assert row.startswith(f"| {size.lr:g} | {size.decay:g} |")


def test_the_page_shows_the_results_that_are_kept() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert fill(page, page_tables()) == page


def test_it_is_a_command() -> None:
    shown = run_python("-m", "benchmarks.planted", "--help")
    assert shown.returncode == 0
    assert "--size {minilm,minilm-other-schedule}" in shown.stdout
