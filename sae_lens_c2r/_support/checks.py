"""Checks of arguments: shapes, devices, neighbours and our own options.

What torch or Python refuses by itself is left to them. Every message names the parameter, what
it should be, and what was found.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sae_lens_c2r._support.errors import shortened


def plain(value: Any) -> Any:
    """A scalar of numpy or torch as Python's number; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def check_number(
    name: str, value: float, *, positive: bool = False, negative: bool = False
) -> None:
    """Raise unless `value` is a finite number of at least 0, or above 0, or of either sign."""
    least = "" if negative else " above 0" if positive else " of at least 0"
    should, value = f"be a finite number{least}", plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(message(name, should, value))
    most = sys.float_info.max  # an integer may be beyond it
    if not (-most if negative else 0) <= value <= most or (positive and value == 0):
        raise ValueError(message(name, should, value))


def check_integer(name: str, value: int, *, minimum: int | None = None) -> None:
    """Raise unless `value` is an integer of at least `minimum`."""
    should = "be an integer" if minimum is None else f"be an integer of at least {minimum}"
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(message(name, should, value))
    if minimum is not None and value < minimum:
        raise ValueError(message(name, should, value))


def check_chunk_size(name: str, value: int | None) -> None:
    """Raise unless `value` is None or an integer of at least 2."""
    if value is not None:
        check_integer(name, value, minimum=2)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(message(name, f"be one of {', '.join(map(repr, choices))}", value))


def check_decoder(W_dec: Tensor, name: str = "W_dec", *, rows: int = 1) -> None:
    """Raise unless `W_dec` is a matrix with at least so many rows, on a device with data."""
    if W_dec.is_meta:
        raise ValueError(message(f"{name}.device", "be a device with data", str(W_dec.device)))
    if W_dec.ndim != 2 or len(W_dec) < rows or W_dec.shape[1] == 0:
        should = "have shape [d_sae, d_in], neither of them 0"
        raise ValueError(message(f"{name}.shape", should, tuple(W_dec.shape)))


def check_feature_acts(feature_acts: Tensor, *, d_sae: int | None) -> None:
    """Raise unless `feature_acts` is a batch of activations of `d_sae` latents, if given."""
    shape = tuple(feature_acts.shape)
    if feature_acts.ndim < 2 or shape[-1] != (d_sae or shape[-1]):
        should = f"be [batch, {d_sae or 'd_sae'}], with a column for each row of `W_dec`"
        raise ValueError(message("feature_acts.shape", should, shape))
    if feature_acts.numel() == 0:
        raise ValueError(message("feature_acts.shape", "hold at least one sample", shape))


def checked_batches(batches: Iterable[Tensor], W_dec: Tensor | None = None) -> Iterator[Tensor]:
    """Batches of activations that fit each other and a decoder, at least one, without NaN."""
    acts, d_sae = None, None if W_dec is None else len(W_dec)
    should = "be tensors of shape [tokens, d_sae], at least one, without NaN"
    for acts in batches:
        if acts.ndim != 2:
            raise ValueError(message("batches", should, tuple(acts.shape)))
        check_feature_acts(acts, d_sae=d_sae)
        if W_dec is not None:
            check_device("feature_acts", acts, W_dec)
        if (acts.coalesce().values() if acts.is_sparse else acts).isnan().any():
            raise ValueError(message("batches", should, "NaN"))
        d_sae = acts.shape[1]
        yield acts
    if acts is None:
        raise ValueError(message("batches", should, []))


def check_pairs(pairs: Tensor, d_sae: int | None = None) -> None:
    """Raise unless `pairs` is a tensor of pairs of latents, of so many if that is known."""
    if pairs.shape[1:] != (2,):
        raise ValueError(message("pairs.shape", "be [pairs, 2]", tuple(pairs.shape)))
    if d_sae and pairs.numel() and not 0 <= pairs.min() <= pairs.max() < d_sae:
        found = f"{pairs.min()}, {pairs.max()}"
        raise ValueError(message("pairs", f"be latents from 0 to {d_sae - 1}", found))


def check_neighbors(neighbors: Tensor, W_dec: Tensor) -> None:
    """Raise unless `neighbors` is a vector of indices of the rows of `W_dec`, beside it."""
    d_sae = len(W_dec)
    if neighbors.dtype != torch.long:
        raise TypeError(message("neighbors.dtype", "be torch.int64", neighbors.dtype))
    if neighbors.shape != (d_sae,):
        should = f"be [{d_sae}], with an entry for each latent"
        raise ValueError(message("neighbors.shape", should, tuple(neighbors.shape)))
    check_device("neighbors", neighbors, W_dec)
    # On another device the check would have to wait for results.
    if neighbors.device.type == "cpu" and not ((neighbors >= 0) & (neighbors < d_sae)).all():
        wrong = int(neighbors[(neighbors < 0) | (neighbors >= d_sae)][0])
        raise ValueError(message("neighbors", f"be indices from 0 to {d_sae - 1}", wrong))


def check_device(name: str, value: Tensor, W_dec: Tensor) -> None:
    """Raise unless a tensor is on the device of `W_dec`."""
    if value.device != W_dec.device:
        should = f"be {W_dec.device}, as of `W_dec`"
        raise ValueError(message(f"{name}.device", should, str(value.device)))


def check_draw(chunk_size: int | None, process_group: dist.ProcessGroup | None) -> None:
    """Raise unless these are how chunks can be drawn."""
    check_chunk_size("chunk_size", chunk_size)
    if process_group is not None and dist.get_rank(process_group) < 0:
        should = "be a process group that this process is in"
        raise ValueError(message("process_group", should, process_group))


def message(name: str, should: str, found: object) -> str:
    """The text of every error; a tensor is shown by its type."""
    shown = f"`{name} = {shortened(repr(found), 200)}`"
    if isinstance(found, Tensor):
        shown = f"`{name}` of type {type(found).__name__}"
    return f"Parameter `{name}` should {should}. Found {shown}."
