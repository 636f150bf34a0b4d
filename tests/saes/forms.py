"""SAEs of every form that SAELens has, with weights of all sizes."""

from typing import Any

import torch
from hypothesis import strategies as st
from sae_lens import SAE
from sae_lens.registry import get_sae_class, get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig

K = 3
FORMS: dict[str, dict[str, Any]] = {
    "jumprelu": {},
    "standard": {},
    "topk": {"k": K},
    "abstopk": {"k": K},
    "gated": {},
    "matching_pursuit": {"max_iterations": K, "residual_threshold": 1e-3},
}
# The training forms that each can begin as, with fields that SAELens has no default for.
TRAINED_AS = {
    "jumprelu": (
        *("jumprelu", "jumprelu_c2r", "batchtopk", "batchtopk_c2r", "ort_c2r"),
        "matryoshka_batchtopk_c2r",
    ),
    "standard": ("standard", "standard_c2r", "jumprelu_c2r", "batchtopk_c2r"),
    "topk": ("topk", "topk_c2r"),
    "abstopk": ("abstopk", "abstopk_c2r"),
    "gated": ("gated", "gated_c2r"),
    "matching_pursuit": ("matching_pursuit", "matching_pursuit_c2r"),
}
PAIRS = [(form, trained) for form, all_of in TRAINED_AS.items() for trained in all_of]


def make_form(
    form: str,
    *,
    d_in: int = 6,
    d_sae: int = 10,
    seed: int = 0,
    one: bool = False,  # threshold for all latents, in units of unit decoder rows
    **fields: Any,
) -> SAE[Any]:
    """An SAE in an inference form, by SAELens's name of it, with other fields of its config."""
    sae_class, config_class = get_sae_class(form)
    sae = sae_class(config_class(d_in=d_in, d_sae=d_sae, **{**FORMS.get(form, {}), **fields}))
    generator = torch.Generator().manual_seed(seed)
    for name, value in sorted(sae.named_parameters()):
        value.data.copy_(torch.randn(value.shape, generator=generator))
        if name == "r_mag":
            value.data.mul_(0.3)
    if form == "matching_pursuit":  # which takes its rows for unit vectors
        sae.W_dec.data.copy_(torch.nn.functional.normalize(sae.W_dec.data, dim=-1))
    if form == "jumprelu":
        own = 10 ** (torch.rand(d_sae, generator=generator) - 1)
        sae.threshold.data.copy_(0.7 / sae.W_dec.data.norm(dim=-1) if one else own)
    return sae


def make_training_config(sae: SAE[Any], trained: str, **fields: Any) -> TrainingSAEConfig:
    """A config with which an SAE can go on; its `apply_b_dec_to_input` is SAELens's default."""
    _, config_class = get_sae_training_class(trained)
    options: dict[str, Any] = {"d_in": sae.cfg.d_in, "d_sae": sae.cfg.d_sae}
    if hasattr(config_class, "k"):
        options["k"] = K
    if "matryoshka" in trained:
        options["matryoshka_widths"] = [1, sae.cfg.d_sae]
    if "matching_pursuit" in trained:
        options |= {**FORMS["matching_pursuit"], "decoder_init_norm": 1.0}
    return config_class(**{**options, **fields})


sizes = st.tuples(st.integers(2, 8), st.integers(K, 16))
