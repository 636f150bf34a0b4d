"""The laws of the penalty, each written once: of the function, and of every architecture."""

from collections.abc import Callable
from itertools import pairwise
from math import log
from typing import Any

import torch
from hypothesis import assume
from sae_lens import TrainingSAE
from sae_lens.saes.sae import TrainStepInput
from torch import Tensor

from sae_lens_c2r import c2r_penalty, nearest_neighbors
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.cosines import pair_cosines
from sae_lens_c2r.penalties.norms import batch_norms
from sae_lens_c2r.penalties.precision import unit_rows
from tests.strategies import Case, Layout

Penalty = Callable[[Tensor, Tensor], Tensor]  # of activations and a decoder


def gradients(penalty: Penalty, case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """The penalty and its gradients in the activations and the decoder."""
    acts = case.feature_acts.clone().requires_grad_()
    W_dec = case.W_dec.clone().requires_grad_()
    value = penalty(acts, W_dec)
    return value.detach(), *derivatives(value, [acts, W_dec])


def derivatives(value: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients, 0 in what the value does not depend on."""
    return torch.autograd.grad(
        value, inputs, retain_graph=True, allow_unused=True, materialize_grads=True
    )


def kept_for_backward(pairs: str, *, d_sae: int, d_in: int, chunk_size: int | None) -> int:
    """Bytes that a backward pass needs from the forward pass, each storage once."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    acts = torch.randn(4, d_sae, requires_grad=True)
    W_dec = torch.randn(d_sae, d_in, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        penalty = c2r_penalty(acts, W_dec, pairs=pairs, chunk_size=chunk_size)
        assert penalty.requires_grad
    return sum(kept.values())


def assume_no_ties(W_dec: Tensor) -> None:
    """Leave out decoders in which two latents are equally near to a third.

    In whatever chunk they meet, either may be its neighbour. Of gates that are closed it does
    not matter whose.
    """
    unit = unit_rows(W_dec)
    cosines = (unit @ unit.T).fill_diagonal_(-torch.inf).sort(dim=1, descending=True).values
    for nearer, farther in pairwise(cosines.T):
        assume(bool(((nearer - farther > 1e-9) | (nearer <= 0)).all()))


def is_finite_and_not_negative(penalty: Penalty, case: Case) -> None:
    value, *grads = gradients(penalty, case)
    assert value >= 0
    assert value.isfinite()
    assert all(grad.isfinite().all() for grad in grads)


def is_zero_without_positive_cosines(penalty: Penalty, case: Case) -> None:
    """For an orthogonal or obtuse decoder the penalty and its gradients are exactly 0."""
    neighbors = nearest_neighbors(case.W_dec, chunk_size=None)
    assert (pair_cosines(case.W_dec, neighbors) <= 0).all(), "the case is not obtuse"
    value, *grads = gradients(penalty, case)
    assert value == 0
    assert all((grad == 0).all() for grad in grads)


def gate_is_between_0_and_1(penalty: Penalty, case: Case) -> None:
    """Two latents of norm 1 alone pay twice their gate."""
    for pair in case.W_dec.split(2):
        gate = penalty(torch.eye(len(pair), dtype=pair.dtype), pair) / 2
        assert 0 <= gate <= 1 + 1e-12


def is_homogeneous(penalty: Penalty, case: Case, scale: float, degree: float) -> None:
    """Of a degree in the activations: their exponent."""
    scaled = penalty(scale * case.feature_acts, case.W_dec)
    expected = scale**degree * penalty(case.feature_acts, case.W_dec)
    torch.testing.assert_close(scaled, expected, rtol=1e-11, atol=1e-12)


def ignores_signs_of_activations(penalty: Penalty, case: Case, signs: Tensor) -> None:
    flipped = penalty(case.feature_acts * signs, case.W_dec)
    assert flipped == penalty(case.feature_acts, case.W_dec)


def ignores_order_of_samples(penalty: Penalty, case: Case, order: Tensor) -> None:
    permuted = penalty(case.feature_acts[order], case.W_dec)
    expected = penalty(case.feature_acts, case.W_dec)
    torch.testing.assert_close(permuted, expected, rtol=1e-12, atol=1e-12)


def ignores_lengths_of_decoder_rows(penalty: Penalty, case: Case, lengths: Tensor) -> None:
    """The activations are in units of unit-norm rows already."""
    assume_no_ties(case.W_dec)
    scaled = penalty(case.feature_acts, lengths[:, None] * case.W_dec)
    expected = penalty(case.feature_acts, case.W_dec)
    torch.testing.assert_close(scaled, expected, rtol=1e-12, atol=1e-9)


def ignores_order_of_latents(penalty: Penalty, case: Case, order: Tensor) -> None:
    assume_no_ties(case.W_dec)
    permuted = penalty(case.feature_acts[:, order], case.W_dec[order])
    expected = penalty(case.feature_acts, case.W_dec)
    torch.testing.assert_close(permuted, expected, rtol=1e-9, atol=1e-9)


def ignores_layout(penalty: Penalty, relaid: Penalty, case: Case) -> None:
    """The same values elsewhere in memory: the same penalty and gradients."""
    assume_no_ties(case.W_dec)
    for found, right in zip(gradients(relaid, case), gradients(penalty, case), strict=True):
        largest = max(1.0, right.abs().max().item())
        torch.testing.assert_close(found / largest, right / largest, rtol=0, atol=1e-12)


def splitting_never_lowers_the_norms(left: Tensor, right: Tensor) -> None:
    """Minkowski, Eq. (4); the norms are equal only where the two parts are proportional."""
    columns = torch.stack([left, right, left + right], dim=1)
    split, whole = (
        batch_norms(columns, torch.float64)[:2].sum(),
        batch_norms(columns, torch.float64)[2],
    )
    assert split >= whole * (1 - 1e-12)
    sine = (1 - torch.cosine_similarity(left, right, dim=0).clamp(-1, 1) ** 2).sqrt()
    if sine > 1e-3 and left.norm() > 1e-3 and right.norm() > 1e-3:
        assert split > whole


def penalty_of_architecture(
    make_sae: Callable[..., TrainingSAE[Any]], name: str, layout: Layout
) -> Penalty:
    """What an SAE adds to its losses, for its own activations of any value.

    Args:
        make_sae: Makes the SAE for the keyword arguments `d_sae`, `d_in` and options.
        name: Prefix of the loss.
        layout: Lays out the activations that the SAE is given.
    """

    def penalty(feature_acts: Tensor, W_dec: Tensor) -> Tensor:
        d_sae, d_in = W_dec.shape
        alone = {"coefficient": 1.0, "interval": 1, "scaling": "none"}
        options = {f"{name}_{option}": value for option, value in alone.items()}
        sae = make_sae(d_sae=d_sae, d_in=d_in, dtype=str(W_dec.dtype).split(".")[1], **options)
        del sae.W_dec  # a parameter cannot be replaced by a tensor that has a history
        sae.W_dec = W_dec
        if not getattr(sae.cfg, "rescale_acts_by_decoder_norm", False):
            lengths = W_dec.detach().norm(dim=-1)
            feature_acts = feature_acts / torch.where(lengths > 0, lengths, 1.0)
        given = TrainStepInput(
            sae_in=W_dec.new_ones(1, d_in),
            coefficients={"c2r": 1.0, "ort": 1.0},
            dead_neuron_mask=None,
            n_training_steps=0,
            is_logging_step=False,
        )
        return sae._penalty_losses(given, layout(feature_acts))[f"{name}_loss"]

    return penalty


def step_follows_the_equations(sae: TrainingSAE[Any], step_input: TrainStepInput) -> None:
    """One step of SAELens: Eq. (26) in value and gradient, and no random state touched."""
    before = torch.get_rng_state()
    output = sae.training_forward_pass(step_input)
    assert torch.equal(torch.get_rng_state(), before)

    cfg, step = sae.cfg, step_input.n_training_steps
    if step % cfg.c2r_interval != 0 or step < cfg.c2r_start_step:
        assert "c2r_loss" not in output.losses
        return
    rescaled = getattr(cfg, "rescale_acts_by_decoder_norm", False)
    penalty = c2r_penalty(
        output.feature_acts if rescaled else output.feature_acts * sae.W_dec.norm(dim=1),
        sae.W_dec,
        chunk_size=cfg.c2r_chunk_size,
        exponent=cfg.c2r_exponent,
        pairs=cfg.c2r_pairs,
        gate=cfg.c2r_gate,
        generator=step_generator(cfg.c2r_seed, step),
    )
    scale = scale_of_the_rule(cfg, step_input.sae_in) if cfg.c2r_scaling == "transfer" else 1.0
    expected = cfg.c2r_interval * step_input.coefficients["c2r"] * scale * penalty
    torch.testing.assert_close(output.losses["c2r_loss"], expected)
    parameters = list(sae.parameters())
    grads = derivatives(output.losses["c2r_loss"], parameters)
    expected_grads = derivatives(expected, parameters)
    assert output.metrics["c2r_penalty"] >= 0
    assert all(grad.isfinite().all() for grad in grads)
    for found, right in zip(grads, expected_grads, strict=True):
        largest = right.abs().max().item()
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5 * largest + 1e-9)


def scale_of_the_rule(cfg: Any, sae_in: Tensor) -> float:
    """docs/how-lambda-transfers.md, written out."""
    if cfg.normalize_activations == "layer_norm":
        sae_in = sae_in - sae_in.mean(dim=-1, keepdim=True)
    r = median([norm for norm in sae_in.norm(dim=-1).tolist() if norm > 0] or [0.0])
    normalizes_itself = cfg.normalize_activations in ("layer_norm", "constant_norm_rescale")
    unit = r / cfg.d_in**0.5 if normalizes_itself else 1.0
    n, n0 = min(cfg.c2r_chunk_size or cfg.d_sae, cfg.d_sae), 8192
    chance, papers_chance = {
        ("nearest", "relu"): (2 * log(n) / cfg.d_in, 2 * log(n0) / 2304),
        ("nearest", "none"): (1, 1),
        ("nearest", "excess"): (1, 1),
        ("all", "excess"): (1, 1),
        ("all", "relu"): ((n - 1) / (2 * cfg.d_in), (n0 - 1) / (2 * 2304)),
        ("all", "none"): (n - 1, n0 - 1),
    }[cfg.c2r_pairs, cfg.c2r_gate]
    a = cfg.c2r_exponent
    per_latent = (cfg.d_sae / len(sae_in)) / (65536 / 2048)
    return r ** (2 - a) * unit**a * per_latent ** (a / 2) * papers_chance / chance


def median(values: list[float]) -> float:
    """The lower of two in the middle, as in torch."""
    return sorted(values)[(len(values) - 1) // 2]
