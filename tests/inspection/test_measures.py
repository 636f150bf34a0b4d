"""The measures of an SAE are what plain loops over its weights and over the tokens find."""

from pathlib import Path

import pytest
import torch

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import absorption_pairs, chance_composition
from sae_lens_c2r.analysis.metrics import METRICS
from sae_lens_c2r.inspection import contexts
from sae_lens_c2r.inspection.contexts import encode
from sae_lens_c2r.inspection.measures import (
    cosine_summary,
    count_max_cosines,
    max_cosine_counts,
    measure,
    measure_on_text,
)
from sae_lens_c2r.saes.encoding import encode_in_saelens_alone
from sae_lens_c2r.saes.sae_ref import inference_form
from tests.architectures.training import D_IN, make_sae
from tests.inspection.planted import on_text, planted_sae, report, text_of, weights
from tests.saes.forms import make_form

INPUTS = torch.randn(30, D_IN, generator=torch.Generator().manual_seed(0))


def test_the_numbers_are_those_of_the_decoder() -> None:
    rows = torch.tensor([[2.0, 0, 0, 0], [3, 0, 0, 0], [0, 4, 0, 0], [0, 0.75, 0.66144, 0]])
    rows = torch.cat([rows, torch.zeros(1, 4)])  # alike to nothing
    found = measure(planted_sae(rows), "mine")
    assert (found.name, found.on_text) == ("mine", None)
    assert found.numbers["zero_decoder_rows"] == 1
    counts = max_cosine_counts(found.numbers) or []
    assert {i: n for i, n in enumerate(counts) if n} == {0: 1, 37: 2, 49: 2}
    assert found.metrics() == {
        "architecture": "standard",
        "d_sae": 5,
        "d_in": 4,
        "composition": pytest.approx(0.7, abs=1e-5),
        "encoder_composition": 0,  # its columns are the unit vectors, and one of zeros
        "chance_composition": chance_composition(5, 4),
        "pairs_above_0.9": 1,
        "pairs_above_0.7": 2,
    }
    assert weights().numbers["zero_decoder_rows"] == 0


def test_what_latents_read_is_measured_where_there_is_a_column_for_each() -> None:
    sae = planted_sae(torch.eye(4))
    sae.W_enc.data[:, 1] = 2 * sae.W_enc.data[:, 0]  # two latents read the same
    assert measure(sae, "x").numbers["encoder_composition"] == pytest.approx(0.5)
    sae.W_enc.data = sae.W_enc.data[:3]  # as of a transcoder
    assert "encoder_composition" not in measure(sae, "x").numbers


@pytest.mark.parametrize("weight", ["W_dec", "W_enc", "b_enc"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_cannot_be_measured_is_named(weight: str, value: float) -> None:
    sae = planted_sae(torch.eye(4))
    getattr(sae, weight).data.flatten()[1] = value
    with pytest.raises(UserError, match=f"^mine: `{weight}` should be finite"):
        measure(sae, "mine")
    with pytest.raises(UserError, match=r"^mine: `W_dec` should"):
        measure(planted_sae(torch.ones(4, 1)), "mine")  # without another direction


def test_every_latent_is_in_one_interval() -> None:
    cosines = torch.tensor([-0.5, 0, 0.019, 0.021, 0.5, 0.999, 1.0, 1.0000001])
    counts = max_cosine_counts(count_max_cosines(cosines)) or []
    assert len(counts) == 50
    assert {i: count for i, count in enumerate(counts) if count} == {0: 3, 1: 1, 25: 1, 49: 3}
    assert max_cosine_counts({"composition": 0.5}) is None


def test_a_row_of_zeros_in_16_bits_stays_finite() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        sae = planted_sae(torch.diag(torch.tensor([2.0, 1, 0]))).to(dtype)
        found = inference_form(sae).W_dec
        assert (found.dtype, found.tolist()) == (dtype, [[1, 0, 0], [0, 1, 0], [0, 0, 0]])


def test_a_training_form_is_measured_as_it_is() -> None:
    trained = make_sae("batchtopk_c2r")
    config, found = measure(inference_form(trained), "x").config, measure(trained, "x")
    assert config.architecture() == "jumprelu"
    assert config.metadata.training_architecture == "batchtopk_c2r"
    assert found.config.architecture() == "batchtopk_c2r"


@pytest.mark.parametrize(
    ("limit", "value", "at_once"),
    [
        *(("_TOKENS_PER_BATCH", n, n) for n in (1, 7, 30)),
        *(("_ACTS_PER_BATCH", value, n) for value, n in ((7 * D_IN, 7), (1, 1))),
    ],
)
def test_every_token_is_counted_and_reconstructed_however_they_are_batched(
    limit: str, value: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sae, inputs = planted_sae(torch.randn(D_IN, D_IN), like_inputs=False), INPUTS
    whole = measure_on_text(sae, text_of(inputs)).numbers
    monkeypatch.setattr(contexts, limit, value)
    sizes = [len(batch) for batch, _ in encode(sae, text_of(inputs))]
    assert (max(sizes), sum(sizes)) == (at_once, len(inputs))
    found = measure_on_text(sae, text_of(inputs))
    times_fired = [0] * D_IN
    residual = 0.0
    for row in inputs:
        acts = torch.relu(row @ sae.W_enc).detach()
        for latent, act in enumerate(acts.tolist()):
            times_fired[latent] += act != 0
        output = sum(act * sae.W_dec[latent].detach() for latent, act in enumerate(acts))
        residual += (row - output).square().sum().item()
    total = (inputs - inputs.mean(dim=0)).square().sum().item()
    assert found.n_tokens == len(inputs)
    assert found.frequencies.tolist() == pytest.approx([n / len(inputs) for n in times_fired])
    assert found.numbers == {
        **whole,
        "explained_variance": pytest.approx(1 - residual / total, rel=1e-4),
        "l0": pytest.approx(sum(times_fired) / len(inputs)),
        "dead_latents": times_fired.count(0) / len(times_fired),
    }


def test_of_attention_s_outputs_the_heads_are_joined_already(tmp_path: Path) -> None:
    sae = make_form("standard", d_in=D_IN, reshape_activations="hook_z")
    plain = measure_on_text(make_form("standard", d_in=D_IN), text_of(INPUTS)).numbers
    assert measure_on_text(sae, text_of(INPUTS)).numbers == plain
    sae.save_model(tmp_path)
    [alone] = encode_in_saelens_alone([(tmp_path, INPUTS)])
    torch.testing.assert_close(alone, sae.encode(INPUTS))


def test_activations_are_dense_and_of_the_type_of_the_sae() -> None:
    text = text_of(INPUTS)
    both = (
        make_sae("batchtopk_c2r", use_sparse_activations=sparse) for sparse in (False, True)
    )
    for (_, expected), (_, found) in zip(*(encode(sae, text) for sae in both), strict=True):
        assert not found.is_sparse
        torch.testing.assert_close(found, expected)
    sae = planted_sae(torch.eye(D_IN)).to(torch.bfloat16)
    ((inputs, acts),) = encode(sae, text)
    assert (inputs.dtype, acts.dtype) == (torch.bfloat16, torch.bfloat16)
    assert not acts.requires_grad


def test_on_text_there_are_pairs_absorption_and_what_fires_together() -> None:
    rows, acts = torch.eye(4), torch.zeros(80, 4)
    rows[1] = torch.tensor([0.5, 0.75**0.5, 0, 0])
    acts[:40, 0] = torch.linspace(1, 2, 40)
    acts[40:60, 1] = 1.5  # where latent 0 would fire
    acts[::2, 2] = 1.0
    found = measure(planted_sae(rows), "x", text_of(acts))
    (pair,) = found.on_text.pairs
    assert [latent.index for latent in pair.latents] == [0, 1]
    assert pair.cosine == pytest.approx(0.5)
    assert pair.latents[0].top_tokens[0].token == "w40"
    absorbed = absorption_pairs(planted_sae(rows).W_dec, [acts])
    assert (absorbed.parents.tolist(), absorbed.children.tolist()) == ([0], [1])
    numbers = found.on_text.numbers
    assert (numbers["absorption_pairs"], numbers["eq_13_holds"]) == (1, 1)
    assert numbers["median_A_by_B"] == pytest.approx((absorbed.A / absorbed.B).item())
    # Of the three live latents 2 fires on half of the tokens of 0 and of 1.
    assert numbers["co_firing"] == pytest.approx((20 / 60 + 10 / 50 + 20 / 60) / 3)
    assert numbers["co_firing_pairs_above_0.5"] == 0


def test_latents_that_fire_are_told_from_those_that_do_not() -> None:
    """The third never fires, and is the same as the first."""
    sae = planted_sae(torch.tensor([[1.0, 0, 0], [0, 1, 0], [1, 0, 0]]))
    found = measure(sae, "x", text_of(torch.tensor([[1.0, 0, 0], [0, 2, 0], [1, 1, 0]])))
    metrics = found.metrics()
    assert metrics["dead_latents"] == pytest.approx(1 / 3)
    assert metrics["composition"] == pytest.approx(2 / 3)
    assert metrics["composition_of_live"] == pytest.approx(0)
    assert metrics["chance_of_live"] == chance_composition(2, 3)
    assert metrics["pairs_above_0.9"] == 1


def test_the_metrics_are_those_that_were_measured() -> None:
    whole = report().metrics()
    tokens = {"n_tokens": whole.pop("n_tokens"), "left out": whole.pop("n_tokens_left_out")}
    assert tokens == {"n_tokens": 10, "left out": 0}
    assert whole == {**weights().metrics(), **on_text().numbers}
    assert whole.keys() <= METRICS.keys()
    assert cosine_summary(torch.tensor([0.9, 1.0, 1.0])) == {
        "cosine_median": 1.0,
        "cosine_1st_percentile": pytest.approx(0.902),
    }
