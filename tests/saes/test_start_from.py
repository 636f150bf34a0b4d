"""An SAE that starts from another does, before its first step, what that one does."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from sae_lens import SAE
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.saes.sae_ref import inference_form
from sae_lens_c2r.saes.start_from import (
    c2r_architecture,
    scale_inputs,
    start_from,
    thresholds_of,
    training_fields,
)
from tests.saes.forms import FORMS, PAIRS, K, make_form, make_training_config, sizes
from tests.strategies import seeds

ESTIMATED = "expected_average_only_in"
RESCALE, B_DEC = "rescale_acts_by_decoder_norm", "apply_b_dec_to_input"
MARGIN = 1e-3  # of pre-activations from what decides: rounding should not


def batch(sae: SAE[Any], seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return 2 * torch.randn(16, sae.cfg.d_in, generator=generator)


@torch.no_grad()
def is_decided(sae: SAE[Any], inputs: Tensor) -> bool:
    """Whether no latent is so near to firing or not that rounding decides it."""
    form = sae.cfg.architecture()
    centred = (inputs - sae.b_dec * sae.cfg.apply_b_dec_to_input).double()
    if form == "matching_pursuit":
        return True
    if form == "gated":
        gate = centred @ sae.W_enc.double() + sae.b_gate.double()
        return bool((gate.abs() > MARGIN).all())
    pre = centred @ sae.W_enc.double() + sae.b_enc.double()
    if "topk" not in form:
        return bool(((pre - thresholds_of(sae)).abs() > MARGIN).all())
    if sae.cfg.rescale_acts_by_decoder_norm:
        pre = pre * sae.W_dec.double().norm(dim=-1)
    ranked = (pre.abs() if form == "abstopk" else pre).sort(descending=True).values
    return pre.shape[1] == K or bool((ranked[:, K - 1] - ranked[:, K] > MARGIN).all())


@torch.no_grad()
def assert_alike(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).norm() <= 1e-6 * expected.norm()


@pytest.mark.parametrize(("form", "trained"), PAIRS)
@given(
    size=sizes,
    seed=seeds,
    applied=st.tuples(st.booleans(), st.booleans()),
    factor=st.none() | st.floats(0.01, 100),
    one=st.booleans(),
    rescaled=st.booleans(),
)
@example(size=(3, 6), seed=0, applied=(False, True), factor=20.0, one=True, rescaled=True)
def test_its_reconstruction_is_the_others(
    form: str,
    trained: str,
    size: tuple[int, int],
    seed: int,
    applied: tuple[bool, bool],
    factor: float | None,
    one: bool,
    rescaled: bool,
) -> None:
    """For each pair of forms, by what is saved, whatever SAELens does to the inputs."""
    own, now = applied
    if form == "matching_pursuit":
        now = own
    fields: dict[str, Any] = {"seed": seed, "one": one, "apply_b_dec_to_input": own}
    if "topk" in form:
        fields[RESCALE] = rescaled
    sae = make_form(form, d_in=size[0], d_sae=size[1], **fields)
    inputs = batch(sae, seed)
    assume(is_decided(sae, inputs))
    expected = sae(inputs)
    goes_on = {**training_fields(sae, trained), "apply_b_dec_to_input": now}
    if factor is not None:
        goes_on["normalize_activations"] = ESTIMATED
    begun = start_from(sae, make_training_config(sae, trained, **goes_on))
    if factor is not None:
        scale_inputs(begun, factor)
        if form == "matching_pursuit":
            begun.cfg.residual_threshold *= factor
        begun.fold_activation_norm_scaling_factor(factor)
    assert_alike(inference_form(begun)(inputs), expected)


@given(size=sizes, seed=seeds, rescaled=st.booleans(), factor=st.floats(0.01, 100))
def test_batches_are_reconstructed_alike_where_k_is_the_l0(
    size: tuple[int, int], seed: int, rescaled: bool, factor: float
) -> None:
    """BatchTopK takes the latents that jump, and no others: in training, on scaled inputs."""
    d_in, d_sae = size
    sae = make_form("jumprelu", d_in=d_in, d_sae=d_sae, seed=seed, one=rescaled)
    inputs = batch(sae, seed)
    assume(is_decided(sae, inputs))
    n_fired = int(sae.encode(inputs).bool().sum())
    assume(n_fired > 0)
    fields = {**training_fields(sae, "batchtopk_c2r"), "k": (n_fired + 0.5) / len(inputs)}
    assert fields["rescale_acts_by_decoder_norm"] == rescaled or d_sae == 1
    begun = start_from(sae, make_training_config(sae, "batchtopk_c2r", **fields))
    scale_inputs(begun, factor)
    with torch.no_grad():
        assert_alike(begun(factor * inputs) / factor, sae(inputs))


@pytest.mark.parametrize(("form", "trained"), [("jumprelu", "batchtopk"), ("topk", "topk_c2r")])
def test_no_latent_is_turned_faster_than_another_for_its_size(form: str, trained: str) -> None:
    rescaled = {"rescale_acts_by_decoder_norm": True}
    sae = make_form(form, seed=3, one=True, **(rescaled if form == "topk" else {}))
    fields = {**training_fields(sae, trained), **rescaled}
    begun = start_from(sae, make_training_config(sae, trained, **fields))
    norms = begun.W_enc.norm(dim=0)
    torch.testing.assert_close(norms, torch.ones_like(norms))
    cosines = torch.nn.functional.cosine_similarity(begun.W_dec, sae.W_dec)  # in their places
    torch.testing.assert_close(cosines, torch.ones_like(cosines))


def test_rounding_to_16_bits_does_not_end_rescaling(tmp_path: Path) -> None:
    sae = make_form("jumprelu", d_in=64, one=True)
    sae.fold_W_dec_norm()
    sae.to(torch.bfloat16).save_model(tmp_path)
    fields = training_fields(SAE.load_from_disk(tmp_path), "batchtopk_c2r")
    assert fields[RESCALE]
    loaded = SAE.load_from_disk(tmp_path)
    start_from(loaded, make_training_config(loaded, "batchtopk_c2r", **fields))


@pytest.mark.parametrize("form", FORMS)
def test_an_sae_goes_on_as_what_it_was(form: str) -> None:
    sae = make_form(form)
    by_form = "batchtopk_c2r" if form == "jumprelu" else f"{form}_c2r"
    for trained, expected in (
        *((None, by_form), ("batchtopk", "batchtopk_c2r"), ("ort", "ort_c2r")),
        *(("ort_c2r", "ort_c2r"), ("somebody_s_own", by_form)),
    ):
        if trained:
            sae.cfg.metadata.training_architecture = trained
        assert c2r_architecture(sae) == expected
    with pytest.raises(UserError, match="a transcoder SAE has no form with C2R"):
        c2r_architecture(make_form("transcoder", d_out=6, **{B_DEC: False}))


def test_what_training_recorded_is_taken() -> None:
    sae = make_form("jumprelu", one=True)
    taken = {"k": 5, "topk_threshold_lr": 0.1, "c2r_coefficient": 2.0}
    others = {"decoder_init_norm": 0.1, RESCALE: False}
    sae.cfg.metadata.training_architecture_details = {**taken, **others}
    fields = training_fields(sae, "batchtopk_c2r")
    assert taken.items() <= fields.items()
    assert "decoder_init_norm" not in fields
    assert fields[RESCALE]
    assert "c2r_coefficient" not in training_fields(sae, "batchtopk")


def test_no_schedule_of_a_finished_training_is_begun_anew() -> None:
    sae, schedules = make_form("standard"), {"l1_warm_up_steps": 100, "c2r_start_step": 100}
    sae.cfg.metadata.training_architecture_details = {"l1_coefficient": 2.0, **schedules}
    fields = training_fields(sae, STANDARD)
    assert fields["l1_coefficient"] == 2.0
    assert not schedules.keys() & fields.keys()


def broken(form: str, parameter: str) -> SAE[Any]:
    """An SAE with a parameter of which the first latent's is 0."""
    sae = make_form(form)
    sae.get_parameter(parameter).data[0] = 0
    return sae


STANDARD = "standard_c2r"
MODES = ("layer_norm", "constant_norm_rescale", "covariance_whitening")


@pytest.mark.parametrize(
    ("sae", "trained", "fields", "named"),
    [
        (make_form("jumprelu"), "batchtopk_c2r", {}, f"`sae.{RESCALE}` should be false"),
        (
            broken("jumprelu", "threshold"),
            *("batchtopk_c2r", {RESCALE: False}, "`sae.architecture` should be `jumprelu`"),
        ),
        (broken("jumprelu", "W_dec"), "batchtopk_c2r", {}, "Found 1 such rows"),
        (make_form("jumprelu"), "topk_c2r", {}, "saved as topk. Found jumprelu"),
        (make_form("gated"), "ort", {}, "saved as jumprelu or standard. Found gated"),
        (make_form("topk"), "topk_c2r", {"k": 4}, "`sae.k` should be 3"),
        (make_form("topk"), "topk_c2r", {RESCALE: True}, f"`sae.{RESCALE}` should be false"),
        (
            make_form("matching_pursuit", apply_b_dec_to_input=False),
            *("matching_pursuit_c2r", {B_DEC: True}, f"`sae.{B_DEC}` should be false"),
        ),
        (make_form("jumprelu"), "jumprelu", {"d_sae": 11}, "`sae.d_sae` should be 10"),
        (make_form("transcoder", d_out=6, **{B_DEC: False}), STANDARD, {}, "Found transcoder."),
        # SAELens does these while an SAE runs.
        *((make_form("standard", normalize_activations=m), STANDARD, {}, m) for m in MODES),
        *((make_form("standard"), STANDARD, {"normalize_activations": m}, m) for m in MODES),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(
    sae: SAE[Any], trained: str, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(UserError) as raised:
        start_from(sae, make_training_config(sae, trained, **fields))
    assert named in str(raised.value)
    assert "\n" not in str(raised.value)
