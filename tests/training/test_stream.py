"""The stream of activations: SAELens's, batch by batch, and the same after any interruption."""

from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from itertools import islice, repeat
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from sae_lens.training.activations_store import ActivationsStore
from sae_lens.training.mixing_buffer import mixing_buffer
from sae_lens.training.prefetch import PrefetchingIterator
from torch import Tensor

from sae_lens_c2r.training.stream import ActivationStream, MixingBuffer
from tests.language_model import CONTEXT, D_MODEL, HOOK, rows_of_tokens, texts, tiny_model


def counting(sizes: list[int]) -> Iterator[Tensor]:
    """Tensors of given sizes, again and again, whose every row is different."""
    start = 0
    for size in (size for sizes in repeat(sizes) for size in sizes):
        yield torch.arange(start, start + size).float()[:, None]
        start += size


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    batch_size=st.integers(1, 30),
    extra=st.integers(0, 60),
    mix_fraction=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
)
def test_the_buffer_is_that_of_sae_lens(
    sizes: list[int], batch_size: int, extra: int, mix_fraction: float
) -> None:
    options: dict[str, Any] = {"buffer_size": batch_size + extra, "batch_size": batch_size}
    options["mix_fraction"] = mix_fraction
    theirs = mixing_buffer(activations_loader=counting(sizes), **options)
    ours = MixingBuffer(counting(sizes), **options)
    torch.manual_seed(0)
    expected = list(islice(theirs, 12))
    torch.manual_seed(0)
    for found, batch in zip(islice(ours, 12), expected, strict=True):
        assert torch.equal(found, batch)


def make_store(data: Dataset, *, seed: int, **options: Any) -> Any:
    """SAELens's store, and torch seeded after all that is random of its making."""
    store = ActivationsStore.from_config_multi_hook(
        **{
            "model": tiny_model(),
            "dataset": data,
            "hook_names": [HOOK],
            "hook_d_ins": {HOOK: D_MODEL},
            "streaming": False,
            "context_size": CONTEXT,
            "n_batches_in_buffer": 5,
            "total_training_tokens": 10_000,
            "store_batch_size_prompts": 3,
            "train_batch_size_tokens": 10,
            "prepend_bos": False,
            "normalize_activations": "none",
            "device": torch.device("cpu"),
            "dtype": "float32",
            **options,
        }
    )
    torch.manual_seed(seed)
    return store


CASES: dict[str, tuple[Callable[[], Dataset], dict[str, Any]]] = {
    "rows of tokens": (rows_of_tokens, {}),
    "texts": (texts, {}),
    "streamed": (lambda: rows_of_tokens().to_iterable_dataset(), {}),
    "without mixing": (rows_of_tokens, {"activations_mixing_fraction": 0.0}),
    "a slice of each row": (
        rows_of_tokens,
        {"seqpos_slice": (2, -1), "n_batches_in_buffer": 9},
    ),
    "without some tokens": (
        rows_of_tokens,
        {"exclude_special_tokens": torch.tensor([0, 3, 7])},
    ),
}


@pytest.mark.filterwarnings("ignore:All samples in the training dataset", "ignore:Dataset is")
@pytest.mark.parametrize("prefetch", [0, 1, 3])
@pytest.mark.parametrize("case", CASES)
def test_a_stream_is_that_of_sae_lens_and_continues(case: str, prefetch: int) -> None:
    data, options = CASES[case]
    theirs = make_store(data(), seed=0, **options).get_multi_hook_data_loader()
    expected = [batch[HOOK] for batch in islice(theirs, 60)]  # several epochs
    for n_before in (1, 7, 23, 40):
        store = make_store(data(), seed=0, **options)
        stream = ActivationStream(store, prefetch=prefetch, state=None)
        with reading(stream) as batches:
            before = [next(batches)[HOOK] for _ in range(n_before)]
            state = stream.state()
        store = make_store(data(), seed=1, **options)
        stream = ActivationStream(store, prefetch=prefetch, state=state)
        with reading(stream) as batches:
            after = [next(batches)[HOOK] for _ in range(len(expected) - n_before)]
        for found, batch in zip([*before, *after], expected, strict=True):
            assert torch.equal(found, batch)


def reading(stream: ActivationStream) -> Any:
    """The stream's batches, and its thread ended after them."""
    if isinstance(stream.batches, PrefetchingIterator):
        return closing(stream.batches)
    return nullcontext(stream.batches)


def test_what_is_resumed_twice_before_it_has_taken_what_lay_ahead_continues() -> None:
    theirs = make_store(rows_of_tokens(), seed=0).get_multi_hook_data_loader()
    expected = [batch[HOOK] for batch in islice(theirs, 30)]
    state, found = None, []
    for each in range(15):
        store = make_store(rows_of_tokens(), seed=each)
        stream = ActivationStream(store, prefetch=4, state=state)
        with reading(stream) as batches:
            found += [next(batches)[HOOK] for _ in range(2)]
            state = stream.state()
    assert all(map(torch.equal, found, expected))
