"""How an SAE's latents find classes of tokens, such as words that begin with one letter."""

from typing import Any

import pandas as pd
import torch
from sae_lens import SAE
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, normalize

from benchmarks.rows import Row

TRAINING = 0.8  # of the tokens; the others are what is measured
F1_RISE = 0.03  # by which another latent belongs to a class; it and what follows are SAEBench's
MOST_LATENTS = 10
ALIGNED, ABSORBER_ALIGNED, SHARE = 0.025, 0.1, 0.4
MOST_ABSORBERS = 3


@torch.no_grad()
def class_measures(sae: SAE[Any], inputs: Tensor, classes: Tensor, *, enough: float) -> Row:
    """Return means over classes (-1 is none) whose probe has enough F1, and their number."""
    # The latents of a class are those that tell it best by whether any of them fires.
    # Absorption is SAEBench's, of unseen tokens that a linear probe gets right: whether a
    # latent that is aligned with the probe makes up for the class's latents that are silent,
    # and what share of the probe's projection others have taken over.
    inputs, classes = inputs.to(sae.device), classes.to(sae.device)
    n_training = int(TRAINING * len(inputs))
    is_class = classes[:, None] == torch.arange(int(classes.max()) + 1, device=sae.device)
    weights, biases = probes(inputs[:n_training], is_class[:n_training])
    directions = normalize(weights, dim=1)
    aligned = cosine_similarity(directions[:, None], sae.W_dec[None], dim=-1)
    latents = torch.cat([sae.encode(each) for each in inputs.split(4096)])
    seen, unseen = latents[:n_training] > 0, slice(n_training, None)
    tokens, fires = inputs[unseen], latents[unseen] > 0
    said = tokens @ weights.T + biases > 0
    rows = []
    for number, is_here in enumerate(is_class[unseen].T):
        probe_f1 = f1(said[:, number], is_here)
        if probe_f1 < enough:
            continue
        main = latents_of_class(seen, is_class[:n_training, number])
        right = said[:, number] & is_here
        share = latents[unseen][right] * aligned[number]
        whole = tokens[right] @ directions[number]
        silent = ~fires[right][:, main].any(dim=1)
        largest, which = share.max(dim=1)
        absorbed = (
            (aligned[number][which] >= ALIGNED) & (whole > 0) & (largest >= SHARE * whole)
        )
        fraction = _fraction(share, whole, aligned[number], main)
        rows.append(
            {
                "f1": f1(fires[:, main].any(dim=1), is_here),
                "latents": len(main),
                "silent": silent.float().mean().item(),
                "full_absorption": (silent & absorbed).float().mean().item(),
                "absorption_fraction": fraction.mean().item(),
                "probe_f1": probe_f1,
            }
        )
    return {**pd.DataFrame(rows).mean().to_dict(), "counted": len(rows)}


def _fraction(share: Tensor, whole: Tensor, aligned: Tensor, main: list[int]) -> Tensor:
    """Return the share of the probe's projection that is not its main latents'."""
    own = share[:, main].sum(dim=1)
    others = share.clone()
    others[:, main] = 0
    others[:, aligned < ABSORBER_ALIGNED] = 0
    taken = others.clamp(min=0).topk(MOST_ABSORBERS).values.sum(dim=1)
    counted = torch.minimum(taken, whole - own)
    fraction = torch.where(own <= 0, 1.0, (counted / (counted + own)).clamp(0, 1))
    return torch.where((own >= whole) | (taken < SHARE * whole), 0.0, fraction)


def latents_of_class(fires: Tensor, is_class: Tensor) -> list[int]:
    """Return the latents that tell a class best, until F1 rises no further."""
    main: list[int] = []
    best, found = 0.0, torch.zeros_like(is_class)
    while len(main) < MOST_LATENTS:
        # Beyond the tokens that are found already, whose latents fire in vain.
        new = fires & ~found[:, None]
        right = new[is_class].sum(dim=0) + (found & is_class).sum()
        scores = 2 * right / (new.sum(dim=0) + found.sum() + is_class.sum())
        score, which = scores.max(dim=0)
        if score < best + F1_RISE:
            break
        best, found = score.item(), found | fires[:, which]
        main.append(int(which))
    return main


def f1(said: Tensor, true: Tensor) -> float:
    """Return the F1 of a guess."""
    return (2 * (said & true).sum() / (said.sum() + true.sum()).clamp(min=1)).item()


def probes(inputs: Tensor, is_class: Tensor) -> tuple[Tensor, Tensor]:
    """Fit a linear probe for each class; return weights, shape ``[n, d_in]``, and biases."""
    n_classes = is_class.shape[1]
    weights = inputs.new_zeros(n_classes, inputs.shape[1]).requires_grad_()
    biases = inputs.new_zeros(n_classes).requires_grad_()
    wanted = is_class.float()
    rarity = (len(wanted) - wanted.sum(dim=0)) / wanted.sum(dim=0).clamp(min=1)
    optimizer = torch.optim.LBFGS(
        [weights, biases], max_iter=200, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores = inputs @ weights.T + biases
        found = binary_cross_entropy_with_logits(scores, wanted, pos_weight=rarity)
        (found := found + 1e-4 * weights.square().sum()).backward()
        return found

    with torch.enable_grad():
        optimizer.step(loss)
    return weights.detach(), biases.detach()
