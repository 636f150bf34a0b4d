"""The nearest decoder row of every latent: Eq. (15), chunked as in Eq. (25) of the paper."""

import random

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sae_lens_c2r._checks import check_chunk_size, check_decoder, check_generator
from sae_lens_c2r.penalties._precision import full_precision, unit_rows

ROWS_PER_TILE = 1024  # bounds the similarities held at once to [1024, chunk]


def nearest_neighbors(
    W_dec: Tensor,
    *,
    chunk_size: int | None = 8192,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Index of the decoder row with the highest cosine to each row, itself excluded.

    .. math::
        j^*(i) = \operatorname{arg\,max}_{j \in \mathrm{chunk}(i),\, j \neq i}
        \langle \hat w_i, \hat w_j \rangle, \qquad \hat w = w / \|w\|_2

    Eq. (15) of the paper over the whole dictionary, Eq. (25) within random chunks.
    The search is not differentiated. It holds at most ``[1024, chunk_size]`` cosines at once
    and costs ``O(d_sae * chunk_size * d_in)``, where the paper's appendix prints
    ``O(chunk_size^2)``.

    Args:
        W_dec: Decoder, shape ``[d_sae, d_in]``, any floating dtype; one row a latent.
            An all-zero row has cosine 0 with every other.
        chunk_size: Latents to a chunk, at least 2. The last chunk may be shorter. `None`
            searches the whole dictionary, and so does any size of ``d_sae`` or more.
        generator: CPU generator that draws the chunks, see `step_generator`. `None` draws
            fresh ones that no seed reproduces. Torch's global random state is not touched
            either way.

    Returns:
        Integer tensor of shape ``[d_sae]`` on the device of `W_dec`. A latent alone in its
        chunk is its own neighbour. Among equal cosines the choice is arbitrary.

    Raises:
        TypeError: If `W_dec` is not a floating-point tensor, or `chunk_size` not an integer.
        ValueError: If `W_dec` is not two-dimensional, or `chunk_size` is below 2.
    """
    check_decoder(W_dec)
    check_chunk_size("chunk_size", chunk_size)
    check_generator(generator)
    return _search(W_dec, chunk_size or len(W_dec), generator)


@torch.no_grad()
def _search(
    W_dec: Float[Tensor, "d_sae d_in"], chunk_size: int, generator: torch.Generator | None
) -> Int[Tensor, " d_sae"]:
    neighbors = torch.empty(len(W_dec), dtype=torch.long, device=W_dec.device)
    with full_precision(W_dec):
        unit = unit_rows(W_dec)
        for chunk in draw_chunks(len(W_dec), chunk_size, generator):
            chunk = chunk.to(W_dec.device)
            neighbors[chunk] = chunk[_nearest_in_chunk(unit[chunk])]
    return neighbors


def draw_chunks(
    d_sae: int, chunk_size: int, generator: torch.Generator | None
) -> tuple[Int[Tensor, " chunk"], ...]:
    """A random partition of the latents, or all of them where they fit into one chunk."""
    if chunk_size >= d_sae:
        return (torch.arange(d_sae),)
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    return torch.randperm(d_sae, generator=generator).split(chunk_size)


def _nearest_in_chunk(unit: Float[Tensor, "chunk d_in"]) -> Int[Tensor, " chunk"]:
    nearest = []
    for start in range(0, len(unit), ROWS_PER_TILE):
        cosines = unit[start : start + ROWS_PER_TILE] @ unit.T
        cosines.diagonal(start).fill_(-torch.inf)
        nearest.append(cosines.argmax(dim=1))
    return torch.cat(nearest)


def step_generator(seed: int, step: int) -> torch.Generator:
    """A CPU generator that depends on nothing but `seed` and `step`.

    A resumed run therefore draws the chunks of the uninterrupted one, on any device.

    Args:
        seed: Any integer.
        step: Number of the training step.

    Returns:
        A new generator. The global random state is neither read nor advanced.
    """
    # Python seeds from a string through SHA-512, so nearby seeds and steps are unrelated.
    return torch.Generator().manual_seed(random.Random(f"{seed}:{step}").getrandbits(63))
