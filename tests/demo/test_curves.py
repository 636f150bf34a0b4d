"""A recording of a training has what its steps did, and changes nothing of it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from matplotlib.colors import to_hex

from sae_lens_c2r.analysis import composition
from sae_lens_c2r.demo import curves
from sae_lens_c2r.demo.curves import RECORD_EVERY, History, record, training_curves
from sae_lens_c2r.reporting.figures import COLORS
from tests.architectures.training import BATCH, make_sae, make_trainer, noise


def train(steps: int, *, recorded: bool = True) -> tuple[Any, dict[str, History]]:
    histories: dict[str, History] = {}
    trainer = make_trainer(make_sae("batchtopk_c2r"), steps, noise())
    if recorded:
        record(histories, "an-sae", trainer)
    return trainer.fit(), histories


@pytest.fixture(scope="module")
def trained() -> tuple[Any, dict[str, History]]:
    return train(2 * RECORD_EVERY + 2)


def test_a_point_is_added_every_so_many_steps(trained: tuple[Any, dict[str, History]]) -> None:
    history = trained[1]["an-sae"]
    assert history.steps == [0, RECORD_EVERY, 2 * RECORD_EVERY]
    assert len(history.explained_variance) == len(history.composition) == 3
    assert history.explained_variance[-1] > history.explained_variance[0]


def test_the_sae_that_is_kept_is_the_trained_one(
    trained: tuple[Any, dict[str, History]],
) -> None:
    sae, histories = trained
    assert histories["an-sae"].sae is sae


def test_recording_does_not_change_the_training(
    trained: tuple[Any, dict[str, History]],
) -> None:
    sae, _ = train(2 * RECORD_EVERY + 2, recorded=False)
    assert torch.equal(sae.W_dec, trained[0].W_dec)


def test_the_speed_leaves_out_the_first_step(trained: tuple[Any, dict[str, History]]) -> None:
    history = trained[1]["an-sae"]
    assert history.tokens == (2 * RECORD_EVERY + 1) * BATCH
    assert history.tokens_per_second == history.tokens / history.seconds > 0


def test_a_training_of_one_step_has_a_speed() -> None:
    history = train(1)[1]["an-sae"]
    assert history.tokens == BATCH
    assert history.tokens_per_second > 0


@pytest.mark.usefixtures("unchecked_types")
def test_a_point_is_the_share_of_the_batchs_variance_that_is_reconstructed() -> None:
    sae = make_sae("topk_c2r")
    history = History(sae)
    sae_in = torch.tensor([[1.0, 2.0], [3.0, 6.0]])  # total variance 1 + 1 + 4 + 4
    history.add(7, SimpleNamespace(sae_in=sae_in, sae_out=sae_in + 0.5))  # type: ignore[arg-type]
    assert history.steps == [7]
    assert history.explained_variance == pytest.approx([1 - 4 * 0.25 / 10])
    assert history.composition == [composition(sae.W_dec)]


def test_every_sae_has_a_history_of_its_own() -> None:
    histories: dict[str, History] = {}
    for name in ("a", "b"):
        record(histories, name, make_trainer(make_sae("topk_c2r"), 1, noise()))
    assert list(histories) == ["a", "b"]
    assert histories["a"].sae is not histories["b"].sae


@pytest.mark.usefixtures("unchecked_types")
def test_the_curves_are_drawn_of_every_sae(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "svg", lambda figure: figure)
    sae = make_sae("topk_c2r")
    histories = {
        "a": History(sae, [0, 10], [0.1, 0.8], [0.2, 0.4]),
        "b": History(sae, [0, 10, 20], [0.2, 0.7, 0.75], [0.1, 0.2, 0.2]),
    }
    left, right = training_curves(histories).axes  # type: ignore[attr-defined]
    for axes, values in ((left, "explained_variance"), (right, "composition")):
        for line, color, history in zip(axes.lines, COLORS, histories.values(), strict=False):
            assert list(line.get_xdata()) == history.steps
            assert list(line.get_ydata()) == getattr(history, values)
            assert to_hex(line.get_color()) == color
    assert left.get_ylim() == (0, 1)
    assert right.get_ylim()[0] == 0
    assert [text.get_text() for text in left.get_legend().get_texts()] == ["a", "b"]
