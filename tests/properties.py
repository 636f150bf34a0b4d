"""What is asked of a penalty in several tests; its laws are in `tests/test_laws.py`."""

from collections.abc import Callable
from math import log
from statistics import median_low
from typing import Any
from unittest.mock import patch

import torch
from sae_lens import TrainingSAE
from sae_lens.saes.sae import TrainStepInput
from torch import Tensor

from sae_lens_c2r import c2r_penalty
from sae_lens_c2r.penalties import step_generator
from tests.strategies import Case

Penalty = Callable[..., Tensor]  # of activations and a decoder


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


def is_finite_and_not_negative(penalty: Penalty, case: Case) -> None:
    value, *grads = gradients(penalty, case)
    assert value >= 0
    assert value.isfinite()
    assert all(grad.isfinite().all() for grad in grads)


# In bfloat16 a neighbour may be found whose cosine is hardly lower than the highest.
@patch("sae_lens_c2r.penalties.neighbors.has_fast_bfloat16", lambda _: False)
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
    assert all(grad.isfinite().all() for grad in grads)
    for found, right in zip(grads, expected_grads, strict=True):
        largest = right.abs().max().item()
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5 * largest + 1e-9)


def scale_of_the_rule(cfg: Any, sae_in: Tensor) -> float:
    """docs/how-lambda-transfers.md, written out."""
    if cfg.normalize_activations == "layer_norm":
        sae_in = sae_in - sae_in.mean(dim=-1, keepdim=True)
    r = median_low([norm for norm in sae_in.norm(dim=-1).tolist() if norm > 0] or [0.0])
    normalizes_itself = cfg.normalize_activations in ("layer_norm", "constant_norm_rescale")
    unit = r / cfg.d_in**0.5 if normalizes_itself else 1.0
    n, n0 = min(cfg.c2r_chunk_size or cfg.d_sae, cfg.d_sae), 8192
    chance, papers_chance = {
        ("nearest", "relu"): (2 * log(n) / cfg.d_in, 2 * log(n0) / 2304),
        ("nearest", "none"): (1, 1),
        ("all", "relu"): ((n - 1) / (2 * cfg.d_in), (n0 - 1) / (2 * 2304)),
        ("all", "none"): (n - 1, n0 - 1),
    }[cfg.c2r_pairs, cfg.c2r_gate]
    a = cfg.c2r_exponent
    per_latent = (cfg.d_sae / len(sae_in)) / (65536 / 2048)
    return r ** (2 - a) * unit**a * per_latent ** (a / 2) * papers_chance / chance
