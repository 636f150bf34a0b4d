"""The nearest decoder row of every latent: Eq. (15), chunked as in Eq. (25) of the paper."""

import math
import random

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.checks import check_chunk_size, check_decoder, check_process_group
from sae_lens_c2r.penalties.cosines import at_least_float32, full_precision, unit_rows
from sae_lens_c2r.penalties.tiles import slices_of_tiles, values_per_tile

GROUP = 16  # values of a row or column that are compared at once


def nearest_neighbors(
    W_dec: Tensor,
    *,
    chunk_size: int | None = 8192,
    generator: torch.Generator | None = None,
    reduced_precision: bool = False,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    r"""Index of the decoder row with the highest cosine to each row, itself excluded.

    .. math::
        j^*(i) = \operatorname{arg\,max}_{j \in \mathrm{chunk}(i),\, j \neq i}
        \langle \hat w_i, \hat w_j \rangle, \qquad \hat w = w / \|w\|_2

    Eq. (15) of the paper over the whole dictionary, Eq. (25) within random chunks.
    The search is not differentiated. It costs ``O(d_sae * chunk_size * d_in)``, where the
    paper's appendix prints ``O(chunk_size^2)``, multiplies every two tiles of a chunk once,
    and holds one chunk's unit rows and one tile's cosines, 2^20 of them on a CPU and 2^24 on
    a GPU.

    Args:
        W_dec: Decoder, shape ``[d_sae, d_in]``, any floating dtype; one row a latent.
            An all-zero row has cosine 0 with every other.
        chunk_size: Latents to a chunk, at least 2. The last chunk may be shorter. `None`
            searches the whole dictionary, and so does any size of ``d_sae`` or more.
        generator: CPU generator that draws the chunks, see `step_generator`. `None` draws
            fresh ones that no seed reproduces. Torch's global random state is not touched
            either way.
        reduced_precision: Whether to compare cosines in bfloat16 where that is faster: for
            decoders up to float32, on GPUs since Ampere and on CPUs that multiply in
            bfloat16. The cosine with the neighbour found is then within about 0.005 of the
            highest.
        process_group: Processes that have the same decoder and share the search: each takes
            every so many-th chunk, and all get all results. The first draws the chunks.

    Returns:
        Integer tensor of shape ``[d_sae]`` on the device of `W_dec`. A latent alone in its
        chunk is its own neighbour. Among equal cosines the choice is arbitrary.

    Raises:
        TypeError: If `W_dec` is not a floating-point tensor, or `chunk_size` not an integer.
        ValueError: If `W_dec` is not two-dimensional, or `chunk_size` is below 2.
    """
    check_decoder(W_dec)
    check_chunk_size("chunk_size", chunk_size)
    check_process_group(process_group)
    return _search(W_dec.detach(), chunk_size, generator, reduced_precision, process_group)


@torch.compiler.disable  # it works in place, on tiles of one buffer
@torch.inference_mode(False)  # the result may serve training later
def _search(
    W_dec: Float[Tensor, "d_sae d_in"],
    chunk_size: int | None,
    generator: torch.Generator | None,
    reduced_precision: bool,
    process_group: ProcessGroup | None,
) -> Int[Tensor, " d_sae"]:
    dtype = at_least_float32(W_dec)
    if reduced_precision and dtype == torch.float32 and has_fast_bfloat16(W_dec.device):
        dtype = torch.bfloat16
    neighbors = torch.zeros(len(W_dec), dtype=torch.long, device=W_dec.device)
    own = slice(None)
    if process_group is not None:
        own = slice(dist.get_rank(process_group), None, dist.get_world_size(process_group))
    for chunk in draw_chunks(W_dec, chunk_size, generator, process_group)[own]:
        unit = W_dec.new_empty((len(chunk), W_dec.shape[1]), dtype=dtype)
        for rows in slices_of_tiles(unit.shape, unit.device):
            unit[rows] = unit_rows(W_dec[chunk[rows]])
        neighbors[chunk] = chunk[_nearest_in_chunk(unit)]
    if process_group is not None:  # the others' latents are 0
        dist.all_reduce(neighbors, group=process_group)
    return neighbors


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether a device is known to multiply in bfloat16 faster than in float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    on_cpu = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")  # torch has no public ones
    return device.type == "cpu" and any(getattr(torch.cpu, each, bool)() for each in on_cpu)


def draw_chunks(
    W_dec: Float[Tensor, "d_sae d_in"],
    chunk_size: int | None,
    generator: torch.Generator | None,
    process_group: ProcessGroup | None,
) -> tuple[Int[Tensor, " _chunk"], ...]:
    """A random partition of the latents, or all of them where they fit into one chunk."""
    d_sae = len(W_dec)
    if chunk_size is None or chunk_size >= d_sae:
        return (torch.arange(d_sae, device=W_dec.device),)
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    # On a CPU, as the generator is, whatever torch's default device is.
    order = torch.randperm(d_sae, generator=generator, device="cpu").to(W_dec.device)
    if process_group is not None:
        first = dist.get_global_rank(process_group, 0)
        dist.broadcast(order, src=first, group=process_group)
    return order.split(int(chunk_size))  # it takes no scalar of numpy


def _nearest_in_chunk(unit: Float[Tensor, "chunk d_in"]) -> Int[Tensor, " chunk"]:
    """The highest cosine of each row, by square tiles: one serves its rows and its columns."""
    edge = math.isqrt(values_per_tile(unit.device))
    highest = unit.new_full((len(unit),), -torch.inf)
    nearest = torch.arange(len(unit), device=unit.device)  # what a lone latent is left with
    buffer = unit.new_empty(min(edge, len(unit)) ** 2)
    for i in range(0, len(unit), edge):
        rows = slice(i, i + edge)
        for j in range(i, len(unit), edge):
            columns = slice(j, j + edge)
            left, right = unit[rows], unit[columns].T
            shape = len(left), right.shape[1]
            with full_precision(unit):
                cosines = torch.mm(left, right, out=buffer[: shape[0] * shape[1]].view(shape))
            if i == j:
                cosines.fill_diagonal_(-torch.inf)
            _keep_higher(highest[rows], nearest[rows], *_highest(cosines, dim=1), offset=j)
            if i < j:
                best = _highest(cosines, dim=0)
                _keep_higher(highest[columns], nearest[columns], *best, offset=i)
    return nearest


def _keep_higher(
    highest: Tensor, nearest: Tensor, values: Tensor, at: Tensor, offset: int
) -> None:
    """Take over, in place, what a tile has found beyond the tiles before it."""
    # A NaN is kept: whoever reads the penalty should see it.
    higher = (values > highest) | values.isnan()
    torch.where(higher, values, highest, out=highest)
    torch.where(higher, at + offset, nearest, out=nearest)


def _highest(cosines: Float[Tensor, "rows columns"], dim: int) -> tuple[Tensor, Tensor]:
    """`cosines.max(dim)`, which on a CPU takes 3 times as long for rows and 10 for columns."""
    if cosines.shape[dim] % GROUP:
        return cosines.max(dim)
    groups = cosines.unflatten(dim, (GROUP, -1))
    highest, group = groups.amax(dim).movedim(dim, -1).contiguous().max(dim=-1)
    of_group = group.unsqueeze(dim).unsqueeze(dim).expand_as(groups.narrow(dim + 1, 0, 1))
    within = groups.gather(dim + 1, of_group).squeeze(dim + 1)
    within = within.movedim(dim, -1).contiguous().argmax(dim=-1)
    return highest, within * groups.shape[dim + 1] + group


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
