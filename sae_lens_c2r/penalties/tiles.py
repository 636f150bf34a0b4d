"""Sizes of the tiles that are worked on at once: enough to keep the hardware busy."""

import torch

# A tile stays in a CPU's cache while it is reduced, and fills a GPU.
VALUES_PER_TILE = {"cpu": 2**20, "cuda": 2**24}


def slices_of_tiles(shape: tuple[int, ...], device: torch.device) -> list[slice]:
    """The rows of every tile of a matrix, at least one at a time."""
    size = max(1, values_per_tile(device) // shape[1])
    return [slice(start, start + size) for start in range(0, shape[0], size)]


def values_per_tile(device: torch.device) -> int:
    """How many values a tile has, on a kind of device."""
    return VALUES_PER_TILE.get(device.type, VALUES_PER_TILE["cpu"])
