"""OrtSAE's penalty: the gate of C2R without its activations."""

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.checks import check_decoder, check_neighbors
from sae_lens_c2r.penalties.cosines import pair_cosines
from sae_lens_c2r.penalties.gates import squared_gate
from sae_lens_c2r.penalties.neighbors import nearest_neighbors


def orthogonality_penalty(
    W_dec: Tensor,
    *,
    chunk_size: int | None = 8192,
    neighbors: Tensor | None = None,
    generator: torch.Generator | None = None,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    r"""Mean squared positive cosine of the decoder rows with their nearest neighbours.

    .. math::
        \mathcal L_{ort} = \frac 1k \sum_{i=1}^k \rho_i^2, \qquad
        \rho_i = \operatorname{ReLU}(\langle \hat w_i, \hat w_{j^*(i)} \rangle)

    The term of OrtSAE (Korznikov et al., 2025), with which the paper compares C2R and on top
    of which it applies it (its section "Relationship to OrtSAE").

    Args:
        W_dec: Decoder, shape ``[d_sae, d_in]``. The length of its rows does not matter.
        chunk_size: Latents among which a neighbour is searched, see `nearest_neighbors`.
        neighbors: int64 tensor of shape ``[d_sae]`` to use instead of searching. A latent
            that is its own neighbour contributes 0.
        generator: Draws the chunks, see `nearest_neighbors`.
        process_group: Processes that share the search, see `nearest_neighbors`.

    Returns:
        Scalar from 0 to 1 in float32, or float64 where `W_dec` is float64, in autocast too.

    Raises:
        TypeError: If `W_dec` is not a floating-point tensor, `neighbors` not int64,
            or `chunk_size` not an integer.
        ValueError: If shapes or devices do not match, or `chunk_size` is below 2.
    """
    check_decoder(W_dec)
    if neighbors is None:
        neighbors = nearest_neighbors(
            W_dec, chunk_size=chunk_size, generator=generator, process_group=process_group
        )
    check_neighbors(neighbors, W_dec)
    return squared_gate(pair_cosines(W_dec, neighbors), "relu").mean()
