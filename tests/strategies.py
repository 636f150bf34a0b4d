"""Generators of decoders and activations, with the cases that break careless code."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor

# Neither so small nor so large that a square leaves float64's range.
VALUES = st.floats(-1e3, 1e3, allow_subnormal=False).map(lambda x: x if abs(x) > 1e-6 else 0.0)


@dataclass(frozen=True)
class Case:
    """Activations [batch, d_sae] and a decoder [d_sae, d_in], in float64."""

    feature_acts: Tensor
    W_dec: Tensor

    @property
    def d_sae(self) -> int:
        return len(self.W_dec)


@st.composite
def decoders(draw: st.DrawFn, d_sae: int, d_in: int) -> Tensor:
    """Rows of any length; some zero, some duplicates, opposites or multiples of others."""
    W_dec = torch.from_numpy(draw(arrays("float64", (d_sae, d_in), elements=VALUES)))
    for i in range(d_sae):
        factor = draw(st.sampled_from([None, None, None, 0.0, 1.0, -1.0, 2.5]))
        if factor is not None:
            W_dec[i] = factor * W_dec[draw(st.integers(0, d_sae - 1))]
    return W_dec


@st.composite
def activations(draw: st.DrawFn, batch: int, d_sae: int) -> Tensor:
    """Activations of either sign, some latents dead."""
    acts = torch.from_numpy(draw(arrays("float64", (batch, d_sae), elements=VALUES)))
    dead = draw(st.lists(st.booleans(), min_size=d_sae, max_size=d_sae))
    return acts.masked_fill(torch.tensor(dead), 0.0)


@st.composite
def sparse_activations(draw: st.DrawFn) -> Tensor:
    """Activations [tokens, d_sae] that are mostly 0; some latents fire as others do."""
    n_tokens, d_sae = draw(st.integers(1, 12)), draw(st.integers(1, 7))
    acts = draw(activations(n_tokens, d_sae))
    silent = torch.from_numpy(draw(arrays("bool", (n_tokens, d_sae))))
    acts = acts.masked_fill(silent, 0.0)
    for i in range(d_sae):
        factor = draw(st.sampled_from([None, None, None, -1.0, 2.5]))
        if factor is not None:
            acts[:, i] = factor * acts[:, draw(st.integers(0, d_sae - 1))]
    return acts


@st.composite
def cases(draw: st.DrawFn, max_d_sae: int = 7) -> Case:
    """A batch and a decoder that fit each other."""
    batch, d_sae, d_in = (draw(st.integers(1, most)) for most in (5, max_d_sae, 5))
    return Case(draw(activations(batch, d_sae)), draw(decoders(d_sae, d_in)))


def _uncoalesced(tensor: Tensor) -> Tensor:
    """Sparse COO with two entries for every value."""
    sparse = tensor.to_sparse()
    indices = sparse.indices().repeat(1, 2)
    values = sparse.values().repeat(2) / 2
    return torch.sparse_coo_tensor(indices, values, tensor.shape, check_invariants=True)


# The same values, differently laid out.
Layout = Callable[[Tensor], Tensor]
DENSE_LAYOUTS: dict[str, Layout] = {
    "contiguous": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.T.contiguous().T,
    "strided": lambda tensor: torch.stack([tensor, tensor + 1], dim=-1)[..., 0],
    "with an offset": lambda tensor: torch.cat([tensor, tensor])[len(tensor) :],
}
LAYOUTS_OF_ACTS: dict[str, Layout] = {
    **DENSE_LAYOUTS,
    "of three dimensions": lambda tensor: tensor[:, None],
    "sparse": Tensor.to_sparse,
    "uncoalesced": _uncoalesced,
}

chunk_sizes = st.none() | st.integers(2, 8)
exponents = st.sampled_from([0.5, 1.0, 1.5, 2.0])
seeds = st.integers(0, 2**32)

# Every architecture of ours, with the options that it cannot do without. A new one joins here.
ARCHITECTURES: dict[str, dict[str, object]] = {
    "abstopk_c2r": {"k": 4},
    "batchtopk_c2r": {"k": 4},
    "gated_c2r": {},
    "jumprelu_c2r": {},
    "matching_pursuit_c2r": {"max_iterations": 4, "decoder_init_norm": 1.0},
    "matryoshka_batchtopk_c2r": {"k": 4, "matryoshka_widths": [17, 64]},
    "ort": {"k": 4},
    "ort_c2r": {"k": 4},
    "standard_c2r": {},
    "topk_c2r": {"k": 4},
}
WITH_C2R = [name for name in ARCHITECTURES if name.endswith("_c2r")]

# Options of C2R, each as likely at its limits as in between.
c2r_options = st.fixed_dictionaries(
    {
        "c2r_interval": st.integers(1, 4),
        "c2r_start_step": st.integers(0, 3),
        "c2r_chunk_size": st.none() | st.integers(2, 80),
        "c2r_exponent": exponents,
        "c2r_pairs": st.sampled_from(["nearest", "all"]),
        "c2r_gate": st.sampled_from(["relu", "none"]),
        "c2r_scaling": st.sampled_from(["transfer", "none"]),
        "c2r_seed": seeds,
    }
)
