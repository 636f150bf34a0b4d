"""Training on a text of one's own: what is wrong with it, and what became of it meanwhile."""

import json
from pathlib import Path

import pytest

from sae_lens_c2r.training.trainer import Trainer
from tests.command import run as run_cli
from tests.training.killing import MINILM, SMALL, as_options, checkpoints, hashes

ID = "layer_3/width_512/batchtopk_c2r_k32"
WORDS = "the parser reads a string of names and raises an error for unknown words"


def rows(n: int, word: str = "parser") -> list[object]:
    return [{"text": f"{number} {WORDS.replace('parser', word)} " * 12} for number in range(n)]


def write(path: Path, rows: list[object], *more: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*map(json.dumps, rows), *more]))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A folder whose second file is reached in the middle of the training."""
    without_text = [{"text": None}, {"text": ""}, {"id": 3}]
    write(tmp_path / "text" / "a.jsonl", [*rows(9), *without_text, *rows(51)])
    return tmp_path / "text"


def train(text: Path, out: Path, *options: object) -> int:
    changes = {**SMALL, "language_model.dataset": str(text)}
    changes["language_model.training_tokens"] = 10 * 1024
    changes |= {"runner.train_batch_size_tokens": 1024, "runner.store_batch_size_prompts": 8}
    command = ["train", MINILM, *as_options(changes), "--only", ID, "--out", out]
    return run_cli(*command, "--device", "cpu", *options)


def test_a_row_that_cannot_be_read_leaves_the_steps_before_it(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, out = text / "b.jsonl", tmp_path / "saes"
    write(bad, rows(20), '{"text": ')
    assert train(text, out) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    [kept] = checkpoints(out)
    step = int(kept.name.removeprefix("step-"))
    assert 0 < step < 10
    assert "JSON parse error" in error
    assert "`--resume` continues from the last checkpoint." in error
    write(bad, rows(20))
    assert train(text, out, "--resume") == 0
    assert len(hashes(out)) == 2


@pytest.fixture
def stopped(
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Path:
    """A training on the text that failed before its fifth step."""
    write(text / "b.jsonl", rows(20))
    next_batch = Trainer._next_batch

    def fail_later(trainer: Trainer) -> object:
        if trainer.n_training_steps == 4:
            raise RuntimeError("the network is gone")
        return next_batch(trainer)

    with monkeypatch.context() as failing:
        failing.setattr(Trainer, "_next_batch", fail_later)
        assert train(text, tmp_path / "saes") == 1
    error = capsys.readouterr().err
    assert "the network is gone" in error
    assert "`--resume` continues from the last checkpoint." in error
    return tmp_path / "saes"


def test_what_fails_between_two_steps_leaves_the_steps_before_it(
    text: Path, stopped: Path, tmp_path: Path
) -> None:
    """And continued, the SAE is that of a training in which nothing failed."""
    assert train(text, stopped, "--resume") == 0
    assert train(text, tmp_path / "untouched") == 0
    assert hashes(stopped) == hashes(tmp_path / "untouched")


def test_a_training_goes_on_with_its_own_text_alone(
    text: Path, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(text / "a.jsonl", rows(60, word="reader"))

    assert train(text, stopped, "--resume") == 1
    told = capsys.readouterr().err
    assert "The text should be the one that the training began with. Found other rows" in told
    assert len(checkpoints(stopped)) == 1


def test_a_pass_over_the_text_without_a_token_to_train_on_is_an_error(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"runner.seqpos_slice": [0, 1], "runner.exclude_special_tokens": [101]}
    assert train(text, tmp_path / "saes", *as_options(options)) == 1
    assert "The text should have tokens to train on." in capsys.readouterr().err
