"""Batches: number i is the same whoever makes it, and wherever a stream is continued."""

import json
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from sae_lens.training.activations_store import ActivationsStore
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.training.stream import ActivationStream, Tokens, within_norm
from tests.language_model import CONTEXT, D_MODEL, HOOK, rows_of_tokens, texts, tiny_model
from tests.process_groups import in_processes

pytestmark = pytest.mark.filterwarnings("ignore:The whole text was read", "ignore:Dataset is")


def make_store(data: Dataset, **options: Any) -> Any:
    return ActivationsStore.from_config_multi_hook(
        **{
            "model": tiny_model(),
            "dataset": data,
            "hook_names": [HOOK],
            "hook_d_ins": {HOOK: D_MODEL},
            "context_size": CONTEXT,
            "n_batches_in_buffer": 5,
            "total_training_tokens": 10_000,
            "store_batch_size_prompts": 3,
            "train_batch_size_tokens": 10,
            "prepend_bos": False,
            **options,
        }
    )


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
    "fewer rows than a pass of the model takes": (lambda: rows_of_tokens(2), {}),
    # Tokens of many norms are above 1.1 times their median, so that batches lose some.
    "without massive norms": (texts, {"norm_multiple": 1.1}),
}


def open_stream(case: str, state: dict[str, Any] | None = None) -> ActivationStream:
    data, options = CASES[case]
    options = dict(options)
    multiple = options.pop("norm_multiple", None)
    store = make_store(data(), **options)
    return ActivationStream(store, seed=1, state=state, norm_multiple=multiple)


def batches(stream: Any, n: int) -> list[Tensor]:
    found = [batch[HOOK] for batch in islice(stream, n)]
    assert len(found) == n
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_stream_is_continued_from_any_batch(case: str) -> None:
    torch.manual_seed(0)
    stream = open_stream(case)
    expected = batches(stream, 60)  # several epochs
    assert all(len(batch) == 10 for batch in expected)
    for n_before in (0, 1, 7, 23, 40):
        torch.manual_seed(n_before)
        state = json.loads(json.dumps(stream.state(n_before)))
        later = open_stream(case, state)
        assert all(map(torch.equal, batches(later, 9), expected[n_before:]))
        again = open_stream(case, later.state(n_before + 2))
        assert all(map(torch.equal, batches(again, 7), expected[n_before + 2 :]))


def test_a_short_training_s_buffers_are_small_also_where_it_is_continued() -> None:
    def short_one(state: dict[str, Any] | None = None) -> ActivationStream:
        return ActivationStream(make_store(texts()), seed=1, state=state, n_batches=2)

    expected, short = batches(open_stream("texts"), 9), short_one()
    ours = batches(short, 9)
    assert not all(map(torch.equal, ours, expected))
    assert short.state(0)["of_a_buffer"] == 2
    assert all(map(torch.equal, batches(open_stream("texts", short.state(2)), 7), ours[2:]))


@pytest.mark.parametrize("options", [{}, {"exclude_special_tokens": torch.tensor([0, 3, 7])}])
def test_without_mixing_the_batches_of_an_epoch_are_those_of_sae_lens(
    options: dict[str, Any],
) -> None:
    options["activations_mixing_fraction"] = 0.0
    theirs = make_store(rows_of_tokens(), **options).get_multi_hook_data_loader()
    ours = ActivationStream(make_store(rows_of_tokens(), **options), seed=0)
    assert all(map(torch.equal, batches(ours, 12), batches(theirs, 12)))


def counted(seed: int, n: int, **options: Any) -> list[list[int]]:
    """The first batches of a text whose activations are the numbers of its tokens."""
    rows = torch.arange(100 * CONTEXT).reshape(-1, CONTEXT)
    store = make_store(Dataset.from_dict({"tokens": rows.tolist()}), **options)
    store.d_in = 1
    store.get_multi_hook_activations = lambda tokens: {HOOK: tokens[..., None].float()}
    return [
        batch.flatten().int().tolist()
        for batch in batches(ActivationStream(store, seed=seed), n)
    ]


@given(
    size=st.integers(3, 30),
    rows=st.integers(1, 12),
    fraction=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
)
def test_a_buffer_lends_a_part_of_its_tokens_to_the_next(
    size: int, rows: int, fraction: float
) -> None:
    options = {"train_batch_size_tokens": size, "n_batches_in_buffer": rows}
    options["activations_mixing_fraction"] = fraction  # type: ignore[assignment]
    n_batches = max(1, rows * CONTEXT // size)
    buffer = n_batches * size
    lent = int(buffer * fraction)
    n_buffers = max(1, min(5, 700 // buffer))
    found = counted(0, n_batches * n_buffers, **options)
    assert all(len(batch) == size for batch in found)
    seen: set[int] = set()
    for number in range(n_buffers):
        tokens = list(chain(*found[number * n_batches : (number + 1) * n_batches]))
        end = lent + (number + 1) * buffer
        assert all(max(0, end - 2 * buffer) <= token < end for token in tokens)
        assert sum(token < end - buffer for token in tokens) == lent
        assert seen.isdisjoint(tokens)
        seen |= set(tokens)
        assert len(seen) == (number + 1) * buffer
    if fraction and size > 9:
        assert counted(1, 1, **options) != found[:1]
        assert any(batch != sorted(batch) for batch in found)


def read_on(_rank: int, states: dict[str, Any], part: int, n: int) -> dict[str, Any]:
    """Batches of each case, from where others have stopped, and where that is by now."""
    streams = {case: open_stream(case, states.get(case)) for case in CASES}
    found: dict[str, Any] = {case: batches(stream, n) for case, stream in streams.items()}
    return {**found, "states": {i: each.state((part + 1) * n) for i, each in streams.items()}}


def test_any_number_of_processes_has_the_same_batches(tmp_path: Path) -> None:
    n = 14  # three times, several epochs
    expected = {case: batches(open_stream(case), 42) for case in CASES}
    states: dict[str, Any] = {}
    for part, size in enumerate((2, 1, 3)):
        (tmp_path / str(part)).mkdir()
        found = in_processes(size, read_on, states, part, n, folder=tmp_path / str(part))
        for number, each in enumerate(found):
            for case in expected:
                own = expected[case][part * n : (part + 1) * n]
                assert len(each[case]) == n
                assert all(map(torch.equal, each[case], own)), (case, part, number)
        states = json.loads(json.dumps(found[0]["states"]))


def test_a_pass_that_has_fewer_tokens_than_before_is_left_for_the_next_one() -> None:
    """Another device or version may leave out other massive tokens."""
    passes = [(0, "", torch.zeros(3, 1)), (1, "", torch.ones(5, 1))]
    tokens = Tokens(iter(passes), n_used=4)
    assert tokens.take(2).tolist() == [[1], [1]]
    assert (tokens.row, tokens.n_used) == (1, 2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"disable_concat_sequences": True, "context_size": 4_000},
            "The text should fill at least one row",
        ),
        ({"hook_d_ins": {HOOK: 5}}, rf"`sae\.d_in` should be {D_MODEL}, the width of {HOOK}"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_first_batch(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        next(ActivationStream(make_store(texts(), **options), seed=0))


@given(
    norms=st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=20),
    multiple=st.floats(1, 20),
)
def test_at_least_half_of_the_tokens_stay_in_their_order(
    norms: list[float], multiple: float
) -> None:
    acts = torch.tensor(norms)[:, None] * torch.tensor([[0.6, 0.8]])
    found = acts[within_norm(acts, multiple)]
    lengths = torch.linalg.vector_norm(acts, dim=1)
    kept = [i for i, each in enumerate(lengths) if each <= multiple * lengths.median()]
    assert torch.equal(found, acts[kept])
    assert 2 * len(found) >= len(acts)
    assert within_norm(acts, None).all()


def test_a_pass_without_tokens_stays_one_and_one_of_nan_alone_is_refused() -> None:
    assert within_norm(torch.zeros(0, 3), 10).shape == (0,)
    with pytest.raises(UserError, match=r"Found NaN in a batch of 3 tokens\."):
        within_norm(torch.tensor([[1.0], [torch.nan], [2.0]]), 10)


def test_massive_tokens_are_not_in_the_stream() -> None:
    """Every third token is made 50 times as long: no batch has one."""
    store = make_store(rows_of_tokens())
    theirs = store.get_multi_hook_activations

    def with_massive(tokens: Tensor) -> dict[str, Tensor]:
        acts = theirs(tokens)[HOOK].clone()
        acts[:, ::3] *= 50
        return {HOOK: acts}

    store.get_multi_hook_activations = with_massive
    norms = torch.cat(batches(ActivationStream(store, seed=0, norm_multiple=10), 40)).norm(
        dim=1
    )
    assert norms.max() <= 10 * norms.median()
