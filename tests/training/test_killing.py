"""What a long run meets: it is killed, the disk is full, a checkpoint is damaged."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train
from tests.training.killing import (
    SMALL,
    Left,
    checkpoints,
    half_written,
    hashes,
    kill_after_saving,
    kill_at_file_operations,
    kill_now_and_then,
    limit_file_size,
    signal_after_checkpoints,
    signal_in_final_evaluation,
    start,
    write_release,
)
from tests.training.rank_processes import told

IDS = ("layer_0/batchtopk_c2r", "layer_0/ort_c2r")
SHORT = {"synthetic_model.training_samples": 100}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def untouched(release: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The hashes of a training that nothing happened to."""
    out = tmp_path_factory.mktemp("untouched") / "saes"
    assert start(release, out, minutes=0).wait() == 0
    return hashes(out)


@pytest.fixture
def stopped(release: Path, tmp_path: Path) -> Path:
    """A training that was killed when it had two checkpoints."""
    out = tmp_path / "saes"
    two = (out, 2, signal.SIGKILL)
    process = start(release, out, before=signal_after_checkpoints, arguments=two)
    assert process.wait() == -signal.SIGKILL
    assert Left.by(out) == Left(checkpoints=2, partial=0, finished=0)
    return out


@pytest.mark.parametrize("kind", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_killed_at_random_moments_it_ends_with_the_same_weights(
    release: Path, tmp_path: Path, untouched: dict[str, str], kind: int
) -> None:
    n_killed = 0
    out = tmp_path / "saes"
    for left, wrong in kill_now_and_then(release, out, kind, seed=1):
        assert not wrong
        assert left.partial == 0 or kind == signal.SIGKILL
        n_killed += 1
    assert n_killed >= 3
    assert hashes(out) == untouched
    assert not (out / ".training").exists()


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_killed_at_any_operation_on_a_file_it_ends_with_the_same_weights(
    release: Path, tmp_path: Path, every: int
) -> None:
    changes = {**SHORT, "grids": [{"id": IDS[0], "sae": {"architecture": "batchtopk_c2r"}}]}
    untouched = tmp_path / "untouched"
    assert start(release, untouched, changes=changes, minutes=0).wait() == 0
    n_moments = 0
    for out, _, wrong in kill_at_file_operations(release, tmp_path, changes, every=every):
        n_moments += 1
        assert not wrong
        assert start(release, out, changes=changes).wait() == 0
        assert hashes(out) == hashes(untouched)
    assert n_moments > 60 / every


def test_killed_while_it_saves_several_saes_it_ends_with_the_same_weights(
    tmp_path: Path,
) -> None:
    changes = SMALL
    release = "minilm-layer-3"
    untouched, out = tmp_path / "untouched", tmp_path / "saes"
    assert start(release, untouched, changes=changes, minutes=0).wait() == 0
    process = start(release, out, changes=changes, before=kill_after_saving, arguments=(2,))
    assert process.wait() == -signal.SIGKILL
    assert Left.by(out).finished == 2
    assert start(release, out, changes=changes).wait() == 0
    assert "From step 4 of 4." in told(out)
    assert hashes(out) == hashes(untouched)


@pytest.mark.parametrize(("kind", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_during_the_final_evaluation_ends_it_and_it_is_continued(
    release: Path, tmp_path: Path, untouched: dict[str, str], kind: int, status: int
) -> None:
    out = tmp_path / "saes"
    changes = {"runner.run_final_eval": True, "runner.eval_samples": 100}
    begun = start(
        release,
        out,
        changes=changes,
        minutes=0,
        before=signal_in_final_evaluation,
        arguments=(kind,),
    )
    assert begun.wait() == status
    assert Left.by(out) == Left(checkpoints=1, partial=0, finished=0)
    assert start(release, out, changes=changes, minutes=0).wait() == 0
    assert "From step 60 of 60." in told(out)
    assert hashes(out) == untouched


def test_without_room_for_the_weights_it_fails_and_is_continued(
    release: Path, untouched: dict[str, str], stopped: Path
) -> None:
    process = start(release, stopped, before=limit_file_size, arguments=(20_000,))
    assert process.wait() == 1
    assert "cannot be written" in told(stopped)
    left = Left.by(stopped)
    assert (left.finished, left.partial, half_written(stopped)) == (0, 0, [])
    assert left.checkpoints >= 1
    assert start(release, stopped).wait() == 0
    assert hashes(stopped) == untouched


@pytest.mark.parametrize(
    "damage", ["cut", "changed", "removed", "no manifest", "other manifest"]
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(
    release: Path, untouched: dict[str, str], stopped: Path, damage: str
) -> None:
    newest = checkpoints(stopped)[-1]
    victim = newest / IDS[0] / "trainer_state.pt"
    if damage == "cut":
        os.truncate(victim, victim.stat().st_size // 2)
    elif damage == "changed":
        content = bytearray(victim.read_bytes())
        content[len(content) // 2] ^= 1
        victim.write_bytes(content)
    elif damage == "removed":
        victim.unlink()
    elif damage == "no manifest":
        (newest / "manifest.json").write_text("{")
    else:
        manifest = json.loads((newest / "manifest.json").read_text())
        manifest["content"]["files"] = {}
        (newest / "manifest.json").write_text(json.dumps(manifest))
    # One of this step was damaged before.
    (newest.parent / f"damaged-{newest.name}").mkdir()
    assert start(release, stopped).wait() == 0
    said = told(stopped)
    assert f"{newest} is damaged" in said
    assert f"From step {int(newest.name.removeprefix('step-')) - 1:,} of" in said
    assert hashes(stopped) == untouched


def test_nothing_is_begun_anew_over_checkpoints_that_are_all_damaged(
    release: Path, stopped: Path
) -> None:
    for checkpoint in checkpoints(stopped):
        (checkpoint / IDS[0] / "trainer_state.pt").unlink()
    plan = make_plan(read_release(release), device="cpu")
    for _ in range(2):
        with pytest.raises(UserError, match=r"No checkpoint in .* is whole"):
            train(plan, stopped, resume=True)


def test_what_a_checkpoint_is_not_of_is_refused(release: Path, stopped: Path) -> None:
    before = sorted((stopped / ".training").rglob("*"))
    cases = [
        ({}, {}, False, "`--resume` should be given: .* came to step"),
        ({"sae.k": 5}, {}, True, r"`saes.layer_0/batchtopk_c2r.k = 5`, and 4 there"),
        ({"runner.lr": 1.0}, {}, True, r"`runner.lr = 1.0`, and None there"),
        (
            {"synthetic_model.training_samples": 90},
            {},
            True,
            r"`source.training_samples = 90`, and 3000 there",
        ),
        ({}, {"only": IDS[1:]}, True, "should include layer_0/batchtopk_c2r"),
    ]
    for changes, chosen, resume, says in cases:
        plan = make_plan(read_release(release, overrides=changes), device="cpu", **chosen)
        with pytest.raises(UserError, match=says):
            train(plan, stopped, resume=resume)
    assert sorted((stopped / ".training").rglob("*")) == before


def test_two_processes_do_not_train_into_one_folder(release: Path, tmp_path: Path) -> None:
    out = tmp_path / "saes"
    one = (out, 1, signal.SIGSTOP)
    process = start(release, out, before=signal_after_checkpoints, arguments=one)
    while not checkpoints(out):
        assert process.is_alive()
        time.sleep(0.02)
    with pytest.raises(UserError, match="no other process"):
        train(make_plan(read_release(release), device="cpu"), out, resume=True)
    process.kill()
    process.wait()


def test_a_grid_of_a_language_model_is_killed_twice_and_ends_with_the_same_weights(
    tmp_path: Path,
) -> None:
    changes = {
        **SMALL,
        "language_model.training_tokens": 16_384,
        "runner.prefetch_llm_batches": 2,
    }
    release = "minilm-layer-3"
    untouched, out = tmp_path / "untouched", tmp_path / "saes"
    assert start(release, untouched, changes=changes, minutes=0).wait() == 0
    for kind in (signal.SIGKILL, signal.SIGTERM):
        two = (out, 2, kind)
        process = start(
            release, out, changes=changes, before=signal_after_checkpoints, arguments=two
        )
        assert process.wait() != 0
    assert start(release, out, changes=changes).wait() == 0
    assert len(hashes(out)) == 8
    assert hashes(out) == hashes(untouched)
