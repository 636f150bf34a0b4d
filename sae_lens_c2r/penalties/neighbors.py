"""The nearest decoder row of every latent: Eq. (15), chunked as in Eq. (25) of the paper."""

import platform
import random
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.checks import check_draw
from sae_lens_c2r.penalties.cosines import (
    CPU,
    edge_of_tiles,
    full_precision,
    in_range,
    row_lengths,
)

# How chunks are drawn: of how many latents, by which generator, and for which processes.
Draw = tuple[int | None, torch.Generator | None, ProcessGroup | None]
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
    Not differentiated. It costs ``O(d_sae * chunk_size * d_in)``, where the paper's appendix
    prints ``O(chunk_size^2)``, and holds one chunk's unit rows and one tile's cosines: 1,024 by
    1,024 of them on a CPU, 8,192 by 8,192 on an accelerator.

    Args:
        W_dec: Decoder, shape ``[d_sae, d_in]``, any floating dtype; one row a latent.
            An all-zero row has cosine 0 with every other. Others have any finite length.
        chunk_size: Latents to a chunk, at least 2. The last chunk may be shorter. `None`
            searches the whole dictionary, and so does any size of ``d_sae`` or more.
        generator: CPU generator that draws the chunks, see `step_generator`. `None` draws
            fresh ones that no seed reproduces. Torch's global random state is left alone.
        reduced_precision: Whether to compare cosines in bfloat16 where that is faster: for
            decoders up to float32, on GPUs since Ampere and on CPUs that are faster in it. The
            cosine with the neighbour found is then within about 0.005 of the highest.
        process_group: Processes that have the same decoder and share the search: each takes
            every so many-th chunk, and all get all results. The first draws the chunks.

    Returns:
        Integer tensor of shape ``[d_sae]`` on the device of `W_dec`. A latent alone in its
        chunk is its own neighbour. Among equal cosines the choice is arbitrary.

    Raises:
        TypeError: If `chunk_size` is not an integer.
        ValueError: If `W_dec` is not a finite matrix, or `chunk_size` is below 2.
    """
    W_dec = in_range(W_dec)
    check_draw(chunk_size, process_group)
    _, inverse = row_lengths(W_dec.detach())
    return search(W_dec, inverse, (chunk_size, generator, process_group), reduced_precision)


@torch.compiler.disable  # the number of tiles differs
@torch.inference_mode(False)  # the result may serve training later
@torch.no_grad()
def search(
    W_dec: Float[Tensor, "d_sae d_in"],
    inverse: Float[Tensor, " d_sae"],
    draw: Draw,
    reduced_precision: bool = False,
) -> Int[Tensor, " d_sae"]:
    """`nearest_neighbors`, unchecked, of rows the inverses of whose lengths are known."""
    dtype = inverse.dtype
    if reduced_precision and dtype == torch.float32 and has_fast_bfloat16(W_dec.device):
        dtype = torch.bfloat16
    chunks, process_group = draw_chunks(W_dec, draw), draw[-1]
    if process_group is not None:
        chunks = chunks[dist.get_rank(process_group) :: dist.get_world_size(process_group)]
    neighbors = torch.zeros(len(W_dec), dtype=torch.long, device=W_dec.device)
    for chunk in chunks:
        unit = [
            (W_dec[part].contiguous() * inverse[part, None]).to(dtype)
            for part in chunk.split(edge_of_tiles(W_dec.device))
        ]
        neighbors[chunk] = chunk[_nearest_in_chunk(unit)]
    if process_group is not None:  # the others' latents are 0
        dist.all_reduce(neighbors, group=process_group)
    return neighbors


def has_fast_bfloat16(device: torch.device) -> bool:
    """Whether a device is known to multiply in bfloat16 faster than in float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return False
    # By what the CPU is, and not by how long it takes now: all processes decide alike.
    has_amx, has_avx512 = (
        getattr(torch.cpu, name, bool)()  # torch has no public ones
        for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    )
    return has_amx or (has_avx512 and is_of_amd())


@cache
def is_of_amd() -> bool:
    """Whether the CPU is AMD's: without AMX, Intel's take longer in bfloat16."""
    about = Path("/proc/cpuinfo")  # elsewhere the platform says it
    text = about.read_text() if about.exists() else platform.processor()
    return "AuthenticAMD" in text


def draw_chunks(W_dec: Float[Tensor, "d_sae d_in"], draw: Draw) -> tuple[Tensor, ...]:
    """A random partition of the latents, or all of them where they fit into one chunk."""
    d_sae, (chunk_size, generator, process_group) = len(W_dec), draw
    if chunk_size is None or chunk_size >= d_sae:
        return (torch.arange(d_sae, device=W_dec.device),)
    if generator is None:
        generator = torch.Generator()
        generator.seed()
    # On a CPU, as the generator is, whatever torch's default device is; from pinned memory it
    # is sent to a GPU without waiting for it.
    on_gpu = W_dec.is_cuda
    order = torch.randperm(d_sae, generator=generator, device="cpu", pin_memory=on_gpu)
    order = order.to(W_dec.device, non_blocking=on_gpu)
    if process_group is not None:
        first = dist.get_global_rank(process_group, 0)
        dist.broadcast(order, src=first, group=process_group)
    return order.split(int(chunk_size))  # it takes no scalar of numpy


def _nearest_in_chunk(unit: list[Float[Tensor, "_rows d_in"]]) -> Int[Tensor, " chunk"]:
    """The highest cosine of each row, by square tiles: one serves its rows and its columns."""
    found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in unit]  # in the tiles of each part
    cosines = None
    for i, left in enumerate(unit):
        for j, right in enumerate(unit[i:], start=i):
            # A tile takes the memory of the one before it: a fresh one would be slower.
            same = cosines is not None and cosines.shape == (len(left), len(right))
            with full_precision(left):
                cosines = torch.mm(left, right.T, out=cosines if same else None)
            if i == j:
                cosines.diagonal().fill_(-torch.inf)
            found[i].append(_highest(cosines, dim=1))
            if i < j:
                found[j].append(_highest(cosines, dim=0))
    if len(unit) == 1:
        return found[0][0][1]
    return torch.cat([_highest_of_tiles(tiles, len(unit[0])) for tiles in found])


def _highest_of_tiles(tiles: list[tuple[Tensor, Tensor]], edge: int) -> Tensor:
    """Where among the columns of all tiles what they have found is the highest."""
    highest, at = (torch.stack(found) for found in zip(*tiles, strict=True))
    # A NaN counts as the highest: whoever reads the penalty should see it.
    tile = highest.max(dim=0, keepdim=True).indices
    return (tile * edge + at.gather(0, tile)).squeeze(0)


def _highest(cosines: Float[Tensor, "rows columns"], dim: int) -> tuple[Tensor, Tensor]:
    """`cosines.max(dim)`, which on a CPU takes 3 times as long for rows and 10 for columns."""
    if cosines.device.type != CPU or cosines.shape[dim] % GROUP:
        return cosines.max(dim)
    groups = cosines.unflatten(dim, (GROUP, -1))
    highest, group = groups.amax(dim).movedim(dim, -1).contiguous().max(dim=-1)
    of_group = group.unsqueeze(dim).unsqueeze(dim).expand_as(groups.narrow(dim + 1, 0, 1))
    within = groups.gather(dim + 1, of_group).squeeze(dim + 1)
    within = within.movedim(dim, -1).contiguous().argmax(dim=-1)
    return highest, within * groups.shape[dim + 1] + group


def step_generator(seed: int, step: int) -> torch.Generator:
    """A new CPU generator of a seed and a step: a resumed run draws the same chunks."""
    # Python seeds from a string through SHA-512, so nearby seeds and steps are unrelated.
    return torch.Generator().manual_seed(random.Random(f"{seed}:{step}").getrandbits(63))
