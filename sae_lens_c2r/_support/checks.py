"""Checks of arguments. Every message names the parameter, what it should be, what was found."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def plain(value: Any) -> Any:
    """A scalar of numpy or torch as Python's number; anything else as it is."""
    return value.item() if getattr(value, "shape", None) == () else value


def check_number(
    name: str, value: float, *, positive: bool = False, negative: bool = False
) -> None:
    """Raise unless `value` is a finite number of at least 0, or above 0, or of either sign."""
    least = "" if negative else " above 0" if positive else " of at least 0"
    should, most = f"be a finite number{least}", sys.float_info.max
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(message(name, should, value, with_type=True))
    # An integer may be beyond what a float can be.
    if not (-most if negative else 0) <= value <= most or (positive and value == 0):
        raise ValueError(message(name, should, value))


def check_numbers(name: str, values: Sequence[float], *, negative: bool = True) -> None:
    """Raise unless `values` is a list of finite numbers, and of which sign."""
    if isinstance(values, str) or not hasattr(plain(values), "__len__"):
        raise TypeError(message(name, "be a list of numbers", values, with_type=True))
    for value in values:
        check_number(name, value, negative=negative)


def check_integer(name: str, value: int, *, minimum: int | None = None) -> None:
    """Raise unless `value` is an integer of at least `minimum`."""
    should = "be an integer" if minimum is None else f"be an integer of at least {minimum}"
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(message(name, should, value, with_type=True))
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
    """Raise unless `W_dec` is a floating-point matrix with at least so many rows."""
    check_floating(name, W_dec, torch.strided)
    if W_dec.is_meta:
        raise ValueError(message(f"{name}.device", "be a device with data", str(W_dec.device)))
    if W_dec.ndim != 2 or len(W_dec) < rows or W_dec.shape[1] == 0:
        should = "have shape [d_sae, d_in], neither of them 0"
        raise ValueError(message(f"{name}.shape", should, tuple(W_dec.shape)))


def check_feature_acts(feature_acts: Tensor, *, d_sae: int | None) -> None:
    """Raise unless `feature_acts` is a batch of activations of `d_sae` latents, if given."""
    check_floating("feature_acts", feature_acts, torch.strided, torch.sparse_coo)
    shape = tuple(feature_acts.shape)
    if feature_acts.ndim < 2 or shape[-1] != (d_sae or shape[-1]):
        should = f"be [batch, {d_sae or 'd_sae'}], with a column for each row of `W_dec`"
        raise ValueError(message("feature_acts.shape", should, shape))
    if feature_acts.is_sparse and feature_acts.sparse_dim() != feature_acts.ndim:
        should = "be dense, or sparse in every dimension"
        raise ValueError(message("feature_acts.sparse_dim", should, feature_acts.sparse_dim()))
    if feature_acts.numel() == 0:
        raise ValueError(message("feature_acts.shape", "hold at least one sample", shape))


def checked_batches(batches: Iterable[Tensor], W_dec: Tensor | None = None) -> Iterator[Tensor]:
    """Batches of activations that fit each other and a decoder, at least one, without NaN."""
    acts, d_sae = None, None if W_dec is None else len(W_dec)
    should = "be a list of tensors of shape [tokens, d_sae], without NaN"
    if not isinstance(batches, Iterable):
        raise TypeError(message("batches", should, batches))
    for acts in batches:
        if isinstance(acts, Tensor) and acts.ndim != 2:
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
    is_whole = isinstance(pairs, Tensor) and not (pairs.is_floating_point() and len(pairs))
    if not is_whole or pairs.shape[1:] != (2,):
        should = "be a tensor of integers of shape [pairs, 2]"
        raise TypeError(message("pairs", should, pairs, with_type=True))
    if d_sae and pairs.numel() and not 0 <= pairs.min() <= pairs.max() < d_sae:
        found = f"{pairs.min()}, {pairs.max()}"
        raise ValueError(message("pairs", f"be latents from 0 to {d_sae - 1}", found))


def check_neighbors(neighbors: Tensor, W_dec: Tensor) -> None:
    """Raise unless `neighbors` is a vector of indices of the rows of `W_dec`, beside it."""
    d_sae = len(W_dec)
    if not isinstance(neighbors, Tensor):
        raise TypeError(message("neighbors", "be a torch.Tensor", neighbors, with_type=True))
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


def check_draw(chunk_size: Any, generator: Any, process_group: Any) -> None:
    """Raise unless these are how chunks can be drawn."""
    check_chunk_size("chunk_size", chunk_size)
    of_cpu = isinstance(generator, torch.Generator) and generator.device.type == "cpu"
    if generator is not None and not of_cpu:
        should = "be None or a torch.Generator of the CPU"
        raise TypeError(message("generator", should, generator, with_type=True))
    is_group = isinstance(process_group, dist.ProcessGroup)
    if process_group is not None and not (is_group and dist.get_rank(process_group) >= 0):
        should = "be None or a torch.distributed process group that this process is in"
        raise TypeError(message("process_group", should, process_group, with_type=True))


class Message(str):
    """The text of an error, with the parts that it is made of."""

    name: str
    should: str
    found: object


def message(name: str, should: str, found: object, *, with_type: bool = False) -> Message:
    """The text of every error. Values that may hold much data are shown by their type."""
    kind = f"{type(found).__module__}.{type(found).__name__}".removeprefix("builtins.")
    has_data = with_type and hasattr(found, "__len__") and not isinstance(found, str)
    of_type = f", of type {type(found).__name__}" if with_type else ""
    shown = f"`{name} = {found!r}`{of_type}"
    if has_data or isinstance(found, Tensor):
        shown = f"`{name}` of type {kind}"
    text = Message(f"Parameter `{name}` should {should}. Found {shown}.")
    text.name, text.should, text.found = name, should, found
    return text


def check_floating(name: str, value: Tensor, *layouts: torch.layout) -> None:
    """Raise unless `value` is a tensor of a floating-point type that torch computes in."""
    if not isinstance(value, Tensor):
        raise TypeError(message(name, "be a torch.Tensor", value, with_type=True))
    if not value.is_floating_point() or value.dtype.itemsize < 2:
        should = "be a floating-point type of at least 16 bits"
        raise TypeError(message(f"{name}.dtype", should, value.dtype))
    if value.layout not in layouts:
        should = f"be {' or '.join(map(str, layouts))}"
        raise ValueError(message(f"{name}.layout", should, value.layout))
