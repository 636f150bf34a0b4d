"""SAEs are measured one after the other, and two of the same activations are compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.inspection import comparison
from sae_lens_c2r.inspection.comparison import (
    Comparison,
    compare,
    inspect,
    kind_of,
    matched_latents,
)
from sae_lens_c2r.inspection.measures import measure
from sae_lens_c2r.inspection.report import report_html
from sae_lens_c2r.saes.sae_ref import SAERef
from tests.architectures.training import D_IN, make_sae
from tests.inspection.planted import planted_sae, text_of

# Four redundant pairs, and the last latent, which is as the first, but never fires.
ALIKE, APART = torch.tensor([[1, 0], [0.8, 0.6]]), torch.tensor([[0.9, -0.4], [0.5, 0.9]])
PLAIN = torch.block_diag(ALIKE, ALIKE, ALIKE, ALIKE, torch.zeros(1, 1))
PLAIN[8, 0] = 1.0
# Of the first pair one latent is left, the next two are turned apart, the last is not.
TURNED = torch.block_diag(torch.zeros(2, 2), APART, APART, ALIKE, torch.ones(1, 1))
TURNED[0, :2], TURNED[1, 8] = torch.tensor([0.9, 0.3]), 1.0
# The third pair fires on one of its tokens together, the others on all of them.
FIRING = torch.block_diag(*[torch.ones(8, 2)] * 4, torch.zeros(8, 1))
FIRING[18:24, 5] = 0.0
FIRING[4:6, 1] = 0.5


def compared(before: Tensor = PLAIN, acts: Tensor = FIRING) -> Comparison:
    text = text_of(acts)
    saes = planted_sae(before), planted_sae(TURNED)
    first, second = (measure(sae, name, text) for sae, name in zip(saes, "ab", strict=True))
    return compare(*saes, text, reports=(first, second))


def test_of_too_many_pairs_the_most_alike_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are counted; those of latents that never fire are not."""
    whole = compared().numbers["redundant_pairs"]
    monkeypatch.setattr(comparison, "MOST_PAIRS", 3)
    found = compared()
    numbers = found.numbers["redundant_pairs"]
    kinds = ("merged", "apart_and_firing_together", "apart", "still_alike", "without_a_match")
    assert (numbers["pairs"], numbers["most_alike"]) == (whole["pairs"], 3)
    assert sum(numbers[kind] for kind in kinds) == 3
    assert "Of the 3 most alike, in b: " in found.sentences()


@pytest.mark.parametrize("fires", [True, False])
def test_one_latent_is_measured_compared_and_shown(fires: bool, tmp_path: Path) -> None:
    sae = planted_sae(torch.tensor([[1.0, 0.0, 0.0]]))
    text = text_of(torch.eye(3).repeat(4, 1) * fires)
    reports = [measure(sae, name, text) for name in ("a", "b")]
    metrics = reports[0].metrics()
    alone = ("composition", "chance_composition", "composition_of_live", "pairs_above_0.7")
    assert {metrics[key] for key in alone} == {0}
    assert metrics["co_firing"] == metrics["co_firing_chance"] == 0
    assert metrics["dead_latents"] == 1 - fires
    between = compare(sae, sae, text, reports=reports)
    assert between.numbers["matched_latents"]["latents"] == fires
    assert "</html>" in report_html(reports, [between], made_by="a test")
    sae.save_model(tmp_path / "one")
    errors: list[UserError] = []
    [found], _ = inspect(
        [SAERef(folder=tmp_path / "one")], device="cpu", on_error=errors.append
    )
    assert (found.metrics()["d_sae"], errors) == (1, [])


def test_the_numbers_and_the_sentences_count_them() -> None:
    numbers = compared().numbers
    assert numbers["redundant_pairs"] == {
        "pairs": 4,
        "merged": 1,
        "apart_and_firing_together": 1,
        "apart": 1,
        "still_alike": 1,
        "without_a_match": 0,
    }
    assert numbers["matched_latents"]["latents"] == 8  # that fire
    assert numbers["matched_latents"]["cosine_median"] == pytest.approx(0.914, abs=1e-3)
    sentences = compared().sentences()
    assert "a has 4 pairs of latents with a cosine above 0.7. In b: 1 merged into" in sentences


def test_without_redundant_pairs_nothing_is_shown() -> None:
    assert compared(torch.eye(9)).shown == []
    silent = compared(acts=torch.zeros(8, 9))
    assert silent.numbers["matched_latents"] == {"latents": 0}


def test_kinds_by_thresholds() -> None:
    for kind, (match, one, cosine, jaccard) in {
        "merged": (0.5, True, 1.0, 1.0),
        "still alike": (0.5, False, 0.71, 1.0),
        "apart and firing together": (0.5, False, 0.7, 0.51),
        "apart": (0.5, False, 0.7, 0.5),
        "without a match": (0.49, True, 1.0, 1.0),
    }.items():
        assert kind_of(match=match, one=one, cosine=cosine, jaccard=jaccard) == kind


def test_latents_that_nothing_resembles_are_without_a_match() -> None:
    before = torch.tensor([[1.0, 0.1, 0], [1, -0.1, 0], [0, 0, 1]])
    after = torch.tensor([[0.4, 1.0, 0.5], [0.4, -1, 0.5], [0, 0, 1]])
    acts, counts = torch.ones(12, 3), []
    for decoder in (before, after):
        saes, text = [planted_sae(before), planted_sae(decoder)], text_of(acts)
        reports = [measure(sae, name, text) for sae, name in zip(saes, "ab", strict=True)]
        pairs = compare(*saes, text, reports=reports).numbers["redundant_pairs"]
        counts.append((pairs["pairs"], pairs["still_alike"], pairs["without_a_match"]))
    assert counts == [(1, 1, 0), (1, 0, 1)]


def test_a_latent_is_matched_by_the_nearest_one_that_fires() -> None:
    before = torch.tensor([[1.0, 0, 0, 0], [2.7, 1.30767, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    after = torch.tensor([[0, 0, 5.0, 0], [0, 0, 0, 1], [4, 0, 0, 0], [3, 4, 0, 0]])
    cosines, matches = matched_latents(before, after, torch.ones(4, dtype=torch.bool))
    assert matches.tolist() == [2, 2, 0, 1]
    assert cosines.tolist() == pytest.approx([1, 0.9, 1, 1], abs=1e-4)
    cosines, matches = matched_latents(before, after, torch.tensor([True, True, False, True]))
    assert matches.tolist()[:2] == [3, 3]
    assert cosines[0].item() == pytest.approx(0.6)
    cosines, _ = matched_latents(before, after, torch.zeros(4, dtype=torch.bool))
    assert cosines.isfinite().all()


def test_the_pairs_that_are_shown_have_their_matches_in_context() -> None:
    found = {matched.pair.latents[0].index: matched for matched in compared().shown}
    merged, together = found[0], found[2]
    assert [latent.index for latent in merged.matches.latents] == [0, 0]
    assert merged.cosines == pytest.approx([0.949, 0.949], abs=1e-3)
    assert [latent.index for latent in together.matches.latents] == [2, 3]
    assert together.matches.cosine == pytest.approx(0.09 / (0.97 * 1.06) ** 0.5)
    assert together.matches.latents[0].top_tokens[0].token == "w9"
    kinds = {first: matched.kind for first, matched in found.items()}
    # The third pair fires too seldom to be shown.
    assert kinds == {0: "merged", 2: "apart and firing together", 6: "still alike"}


class Planted(SAERef):
    """An SAE that is loaded from nowhere."""

    def load(self, device: str) -> Any:
        assert device == "cpu"
        if "missing" in self.name:
            raise UserError(f"{self.name}: cannot be loaded.")
        sae = planted_sae(torch.eye(4))
        if "nan" in self.name:
            sae.W_dec.data[0, 0] = torch.nan
        return sae


class Source:
    """A text that some SAEs' models cannot read."""

    text = text_of(torch.ones(20, 4))

    def activations(self, _sae: Any, name: str) -> Any:
        if "unread" in name:
            raise UserError(f"{name}: `model` should have the hook x.")
        return text_of(torch.ones(20, 4)) if "other" in name else self.text


def look_at(
    *names: str,
    source: Any = None,
    also_told: Sequence[str] = (),
) -> Any:
    errors: list[UserError] = []
    told: list[str] = []
    refs = [Planted(folder=Path(name)) for name in names]
    how: dict[str, Any] = {"device": "cpu", "source": source}
    reports, found = inspect(refs, on_error=errors.append, tell=told.append, **how)
    of_each = [f"{n} of {len(names)}: {name}" for n, name in enumerate(names, start=1)]
    assert told == [*of_each, *also_told]
    return reports, found, list(map(str, errors))


@pytest.mark.parametrize("name", ["missing", "nan"])
def test_saes_are_measured_in_order_without_those_that_cannot_be(name: str) -> None:
    reports, comparisons, [error] = look_at("b", name, "a")
    assert [(report.name, report.on_text) for report in reports] == [("b", None), ("a", None)]
    assert error.startswith(f"{name}: ")
    assert comparisons == []
    assert look_at() == ([], [], [])


def test_two_saes_of_the_same_activations_are_compared() -> None:
    reports, [comparison], errors = look_at("a", "b", source=Source())
    assert errors == []
    assert [(20 * report.on_text.frequencies).tolist() for report in reports] == [[20] * 4] * 2
    assert (comparison.before, comparison.after) == ("a", "b")
    near = comparison.numbers["matched_latents"]
    assert near["cosine_1st_percentile"] == pytest.approx(1)
    for names in (("a",), ("a", "b", "c"), ("a", "nan"), ("a", "unread")):
        assert look_at(*names, source=Source())[1] == []
    why = ["The SAEs are not compared: they read other activations of the text."]
    assert look_at("a", "other", source=Source(), also_told=why)[1] == []


def test_a_number_that_is_not_finite_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    twins, source = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), Source()  # one beside itself: B = 0
    monkeypatch.setattr(Planted, "load", lambda *_: planted_sae(twins))
    monkeypatch.setattr(source, "text", text_of(torch.eye(2).repeat_interleave(20, dim=0)[:30]))
    told = ["a: not finite: median_A_by_B."]
    [report], _, errors = look_at("a", source=source, also_told=told)
    assert errors == []
    assert report.metrics()["absorption_pairs"] == 1
    assert "median_A_by_B" not in report.metrics()


@pytest.mark.parametrize("architecture", ["topk_c2r", "batchtopk_c2r"])
def test_a_checkpoint_is_measured_as_the_sae_that_is_saved_of_it(
    architecture: str, tmp_path: Path
) -> None:
    sae = make_sae(architecture)
    if hasattr(sae, "topk_threshold"):
        sae.topk_threshold.fill_(0.03)
    sae.save_model(tmp_path / "checkpoint")
    sae.save_inference_model(tmp_path / "saved")
    source: Any = Source()
    source.text = text_of(5 * torch.randn(400, D_IN))
    refs = [SAERef(folder=tmp_path / name) for name in ("checkpoint", "saved")]
    reports, _ = inspect(refs, device="cpu", source=source, on_error=pytest.fail)
    checkpoint, saved = (report.metrics() for report in reports)
    assert checkpoint["absorption_pairs"] > 0
    assert checkpoint == pytest.approx(saved)
