"""What the weights of an SAE say, without any data."""

import pytest
import torch

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import chance_composition
from sae_lens_c2r.inspection.measures import INTERVALS, Inspection, inspect_sae
from sae_lens_c2r.saes.sae_ref import inference_form
from tests.architectures.training import make_sae
from tests.inspection.planted import inspection, planted_sae


def with_cosines(*cosines: float) -> Inspection:
    found = inspection()
    return Inspection(**{**vars(found), "max_cosines": torch.tensor(cosines)})


def test_the_numbers_are_those_of_the_decoder() -> None:
    rows = torch.tensor([[2.0, 0, 0, 0], [3, 0, 0, 0], [0, 4, 0, 0], [0, 0.75, 0.66144, 0]])
    found = inspect_sae(planted_sae(rows), "mine")
    assert (found.name, found.architecture, found.d_in, found.d_sae) == (
        "mine",
        "standard",
        4,
        4,
    )
    assert found.max_cosines.tolist() == pytest.approx([1, 1, 0.75, 0.75], abs=1e-5)
    assert found.composition == pytest.approx(0.875, abs=1e-5)
    assert found.chance_composition == chance_composition(4, 4)
    assert found.pairs == [1, 2]
    assert found.decoder_norms.tolist() == pytest.approx([2, 3, 4, 1], abs=1e-5)


def test_rows_of_zero_are_counted_and_alike_to_nothing() -> None:
    rows = torch.eye(4)
    rows[2] = 0
    found = inspect_sae(planted_sae(rows), "mine")
    assert (found.zero_rows, found.pairs) == (1, [0, 0])
    assert inspection().zero_rows == 0


@pytest.mark.parametrize("weight", ["W_dec", "W_enc", "b_enc"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_weight_that_is_not_finite_is_named(weight: str, value: float) -> None:
    sae = planted_sae(torch.eye(4))
    getattr(sae, weight).data.flatten()[1] = value
    with pytest.raises(UserError, match=f"^mine: `{weight}` should be finite"):
        inspect_sae(sae, "mine")


@pytest.mark.parametrize("shape", [(1, 4), (4, 1)])
def test_a_decoder_without_another_row_or_direction_is_told(shape: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=r"^mine: `W_dec` should .* at least 2 .* Found \("):
        inspect_sae(planted_sae(torch.ones(shape)), "mine")


def test_every_latent_is_in_one_interval() -> None:
    counts = with_cosines(-0.5, 0, 0.019, 0.021, 0.5, 0.999, 1.0, 1.0000001).cosine_counts
    assert len(counts) == INTERVALS == 50
    assert {i: count for i, count in enumerate(counts) if count} == {0: 3, 1: 1, 25: 1, 49: 3}


def test_the_form_and_what_it_was_trained_as_are_told_apart() -> None:
    trained = make_sae("batchtopk_c2r")
    trained.cfg.metadata.model_name = "gpt2"
    found = inspect_sae(inference_form(trained), "x")
    assert (found.architecture, found.trained_as) == ("jumprelu", "batchtopk_c2r")
    assert found.metadata["model_name"] == "gpt2"
    assert inspection().trained_as is None


def test_a_training_sae_is_measured_without_its_gradients() -> None:
    found = inspect_sae(make_sae("topk_c2r"), "x")
    assert found.architecture == "topk_c2r"
    assert not found.max_cosines.requires_grad
    assert not found.decoder_norms.requires_grad
