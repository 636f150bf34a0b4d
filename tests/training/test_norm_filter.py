"""Tokens of massive norm are left out of the stream, whatever they are mixed with."""

from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.releases.model import ReleaseError
from sae_lens_c2r.training.norm_filter import NORM_MULTIPLE, within_norm
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.sameness import settings_of
from sae_lens_c2r.training.stream import ActivationStream
from tests.language_model import HOOK, rows_of_tokens
from tests.training.test_stream import make_store


@given(
    norms=st.lists(st.floats(0, 1e4, width=32), min_size=1, max_size=20),
    multiple=st.floats(1, 20),
)
def test_at_least_half_of_the_tokens_stay_in_their_order(
    norms: list[float], multiple: float
) -> None:
    acts = torch.tensor(norms)[:, None] * torch.tensor([[0.6, 0.8]])
    found = within_norm(acts, multiple)
    lengths = torch.linalg.vector_norm(acts, dim=1)
    kept = [i for i, each in enumerate(lengths) if each <= multiple * lengths.median()]
    assert torch.equal(found, acts[kept])
    assert 2 * len(found) >= len(acts)
    assert torch.equal(within_norm(acts, None), acts)


def test_a_batch_without_tokens_stays_one() -> None:
    assert within_norm(torch.zeros(0, 3), 10).shape == (0, 3)


def test_activations_that_are_no_numbers_end_what_would_go_on_without_any() -> None:
    with pytest.raises(UserError, match=r"Found NaN in a batch of 3 tokens\."):
        within_norm(torch.tensor([[1.0], [torch.nan], [2.0]]), 10)


def test_massive_tokens_are_not_in_the_stream_which_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every third token is made 50 times as long: the stream is that of the other tokens."""

    def stream(seed: int, state: dict[str, Any] | None = None) -> ActivationStream:
        store = make_store(rows_of_tokens(), seed=seed)
        theirs = store.get_multi_hook_activations

        def with_massive(tokens: torch.Tensor) -> dict[str, torch.Tensor]:
            acts = theirs(tokens)[HOOK].clone()
            acts[:, ::3] *= 50
            return {HOOK: acts}

        monkeypatch.setattr(store, "get_multi_hook_activations", with_massive)
        return ActivationStream(store, state=state, norm_multiple=10)

    expected = [batch[HOOK] for batch in islice(stream(0), 40)]
    norms = torch.cat(expected).norm(dim=1)
    assert norms.max() <= 10 * norms.median()
    first = stream(0)
    found = [next(first)[HOOK] for _ in range(13)]
    later = stream(1, first.state())
    found += [next(later)[HOOK] for _ in range(27)]
    assert all(map(torch.equal, found, expected))


def test_it_is_one_of_the_settings_that_a_run_has_to_share() -> None:
    runners = []
    for multiple in (None, 10):
        changes = {f"runner.{NORM_MULTIPLE}": multiple}
        release = read_release(find_release("minilm-layer-3"), changes=changes)
        plan = make_plan(release, device="cpu")
        runners.append(settings_of(plan, list(plan.saes))["runner"])
    assert NORM_MULTIPLE not in runners[0]
    assert runners[1] == {**runners[0], NORM_MULTIPLE: 10}


@pytest.mark.parametrize(
    "multiple", [0.5, True, "10", float("nan"), float("inf"), 10**400, [10]]
)
def test_what_is_no_multiple_is_named(multiple: Any) -> None:
    changes = {f"runner.{NORM_MULTIPLE}": multiple}
    release = read_release(find_release("minilm-layer-3"), changes=changes)
    with pytest.raises(ReleaseError, match="should be a finite number of at least 1"):
        make_plan(release, device="cpu")
