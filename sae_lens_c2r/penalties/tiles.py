"""Sizes of the tiles that are worked on at once: enough to keep the hardware busy."""

import math

import torch

# A tile stays in a CPU's cache while it is reduced, and fills a GPU.
VALUES_PER_TILE = {"cpu": 2**20, "cuda": 2**24}


def slices_of_tiles(shape: tuple[int, ...], device: torch.device) -> list[slice]:
    """The rows of every tile of a matrix, at least one at a time."""
    size = max(1, _values_per_tile(device) // shape[1])
    return [slice(start, start + size) for start in range(0, shape[0], size)]


def edge_of_square_tile(device: torch.device, *, multiple_of: int) -> int:
    """Rows and columns of the largest square tile, a positive multiple of a number."""
    edge = math.isqrt(_values_per_tile(device))
    return max(1, edge // multiple_of) * multiple_of


def _values_per_tile(device: torch.device) -> int:
    return VALUES_PER_TILE.get(device.type, VALUES_PER_TILE["cpu"])
