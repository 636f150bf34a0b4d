"""When neighbours are searched, and for whom."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sae_lens_c2r import c2r_penalty, nearest_neighbors
from sae_lens_c2r.architectures import search as search_module
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.cosines import pair_cosines
from tests.architectures.training import make_config, make_sae, step_input

Searches = list[dict[str, Any]]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    """The keyword arguments of every search."""
    made: Searches = []

    def record(W_dec: torch.Tensor, **options: Any) -> torch.Tensor:
        made.append(options)
        return nearest_neighbors(W_dec, **options)

    monkeypatch.setattr(search_module, "nearest_neighbors", record)
    return made


def train(sae: Any, steps: range, between: Callable[[], object] = lambda: None) -> list[Any]:
    outputs = []
    for step in steps:
        outputs.append(sae.training_forward_pass(step_input(sae, step)))
        between()
    return outputs


def test_penalties_of_a_step_share_a_search(searches: Searches) -> None:
    train(make_sae("ort_c2r"), range(6))
    assert len(searches) == 2  # at steps 0 and 5


def test_penalties_that_draw_other_chunks_do_not(searches: Searches) -> None:
    train(make_sae("ort_c2r", ort_seed=1), range(5))
    train(make_sae("ort_c2r", ort_chunk_size=16), range(5))
    train(make_sae("ort_c2r", ort_interval=10), range(5))
    train(make_sae("ort_c2r", ort_search_interval=2), range(5))
    assert len(searches) == 8


@pytest.mark.parametrize("architecture", ["batchtopk_c2r", "ort"])
def test_neighbors_serve_as_many_penalties_as_asked_for(
    architecture: str, searches: Searches
) -> None:
    name = "ort" if architecture == "ort" else "c2r"
    options = {f"{name}_interval": 2, f"{name}_search_interval": 3, f"{name}_chunk_size": None}
    sae = make_sae(architecture, **options)
    outputs = train(sae, range(8), lambda: torch.nn.init.normal_(sae.W_dec))
    assert len(searches) == 2  # at steps 0 and 6
    metric = f"{name}_neighbor_staleness"
    assert [metric in output.metrics for output in outputs] == [False] * 6 + [True] * 2
    assert outputs[6].metrics[metric] > 0, "the old neighbours are as near as the nearest"


def test_reused_neighbors_are_those_found_first() -> None:
    sae = make_sae("topk_c2r", c2r_search_interval=2, c2r_chunk_size=16, c2r_scaling="none")
    neighbors = nearest_neighbors(sae.W_dec, chunk_size=16, generator=step_generator(0, 0))
    train(sae, range(5), lambda: torch.nn.init.normal_(sae.W_dec))
    [output] = train(sae, range(5, 6))
    expected = 5 * 5 * c2r_penalty(output.feature_acts, sae.W_dec, neighbors=neighbors)
    torch.testing.assert_close(output.losses["c2r_loss"], expected)
    cosines = pair_cosines(sae.W_dec, neighbors)
    torch.testing.assert_close(output.metrics["c2r_mean_max_cosine"], cosines.mean())


def test_a_resumed_run_searches_the_chunks_that_served(searches: Searches) -> None:
    sae = make_sae("topk_c2r", c2r_search_interval=2, c2r_chunk_size=16)
    [output] = train(sae, range(5, 6))  # the second penalty of neighbours found at step 0
    chunks = searches[0]["generator"].initial_seed()
    assert chunks == step_generator(0, 0).initial_seed()
    assert output.metrics["c2r_penalty"] > 0


def test_unless_asked_for_no_search_serves_twice(searches: Searches) -> None:
    """Not even at the same step, where the decoder may be another one by then."""
    sae = make_sae("topk_c2r")
    for _ in range(2):
        outputs = train(sae, range(6))
        assert all("c2r_neighbor_staleness" not in output.metrics for output in outputs)
    train(sae, range(5, 6))
    assert len(searches) == 5


REUSED = {"c2r_search_interval": 4, "c2r_interval": 2, "c2r_chunk_size": None}


def test_another_decoder_gets_neighbors_of_its_own(searches: Searches) -> None:
    sae, other = make_sae("topk_c2r", **REUSED), make_sae("topk_c2r", seed=5, **REUSED)
    train(sae, range(1))
    sae.load_state_dict(other.state_dict())
    losses = [train(s, range(2, 3))[0].losses["c2r_loss"] for s in (sae, other)]
    assert losses[0] == losses[1]
    assert len(searches) == 3


def test_another_run_gets_neighbors_of_its_own(searches: Searches) -> None:
    sae = make_sae("topk_c2r", **REUSED)
    train(sae, range(4))
    outputs = train(sae, range(4))
    assert len(searches) == 2
    assert "c2r_neighbor_staleness" not in outputs[-1].metrics


def test_inference_does_not_spoil_training() -> None:
    sae = make_sae("topk_c2r", **REUSED)
    with torch.inference_mode():
        train(sae, range(1))
    [output] = train(sae, range(2, 3))
    output.loss.backward()


def test_bad_search_interval_is_named() -> None:
    for architecture, name in (("topk_c2r", "c2r"), ("ort", "ort")):
        with pytest.raises(ValueError, match=f"Found `{name}_search_interval = 0`"):
            make_config(architecture, **{f"{name}_search_interval": 0})
