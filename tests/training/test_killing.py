"""What a long run meets: it is killed, the disk is full, a checkpoint is damaged."""

import signal
import time
from itertools import count, product
from pathlib import Path
from unittest.mock import Mock

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.training.output_dir import KEPT, Checkpoints
from sae_lens_c2r.training.plan import make_plan
from sae_lens_c2r.training.train import train as train_plan
from tests.training.killing import (
    IDS,
    MINILM,
    SMALL,
    STEPS,
    after_checkpoints,
    as_options,
    checkpoints,
    half_written,
    hashes,
    kill_at_file_operation,
    left,
    limit_file_size,
    signal_after_naming,
    signal_amid_work,
    signal_behind_the_last_step,
)
from tests.training.rank_processes import start, told, train


@pytest.fixture
def stopped(release: Path, out: Path) -> Path:
    """A training that was killed when it had two checkpoints."""
    assert train(1, release, out, before={0: after_checkpoints(out, 2, signal.SIGKILL)}) == [-9]
    assert left(out) == (2, 0, 0)
    return out


def fill(folder: Path) -> list[Path]:
    (folder / "sae").mkdir()
    (folder / "sae" / "weights").write_text("weights")
    return [folder / "sae"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_are_kept_and_the_last_is_continued(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "work")
    assert kept.newest(on_damage=pytest.fail) is None
    for step in range(1, KEPT + 3):
        assert kept.write(step, {"seconds": step}, fill).name == f"step-{step:09d}"
    assert names(tmp_path / "work") == [f"step-{step:09d}" for step in (3, 4)]
    newest = kept.newest(on_damage=pytest.fail)
    assert (newest.step, newest.about) == (4, {"seconds": 4})
    assert (newest.folder / "sae" / "weights").read_text() == "weights"
    kept.remove_all()
    assert names(tmp_path / "work") == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("sae/weights", content) for content in ("weigh", "Weights", None)),
        *(("manifest.json", content) for content in ("{", '{"content": {}, "sha256": "0"}')),
    ],
)
def test_damaged_ones_are_named_and_the_one_before_them_is_continued(
    tmp_path: Path, name: str, content: str | None
) -> None:
    kept, damages = Checkpoints(tmp_path), []

    def damage(checkpoint: Path) -> None:
        (checkpoint / name).unlink()
        if content is not None:
            (checkpoint / name).write_text(content)

    first = kept.write(6, {}, fill)
    for step in (7, 9, 7):
        damage(kept.write(step, {}, fill))
        assert kept.newest(on_damage=damages.append).step == 6
        assert len(names(tmp_path)) == 1
    damage(first)
    for _ in range(2):  # nothing is begun anew over it
        with pytest.raises(UserError, match=r"has no intact checkpoint"):
            kept.newest(on_damage=damages.append)
        assert names(tmp_path) == ["step-000000006"]
    assert all(damage.startswith(f"{tmp_path}/step-") for damage in damages)


def test_one_that_cannot_be_read_just_now_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Checkpoints(tmp_path)
    written = [kept.write(step, {}, fill) for step in (1, 2)]
    failing = Mock(side_effect=OSError(5, "Input/output error"))
    monkeypatch.setattr("sae_lens_c2r._support.files.sha256_of", failing)
    with pytest.raises(OSError, match="Input/output"):
        kept.newest(on_damage=pytest.fail)
    assert all(folder.is_dir() for folder in written)


def test_what_cannot_be_written_leaves_those_before_it(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.write(1, {}, fill)

    def fail(folder: Path) -> list[Path]:
        fill(folder)
        raise RuntimeError("torch is at a loss")

    with pytest.raises(OSError, match=r"cannot be written\. torch is at a loss"):
        kept.write(2, {}, fail)
    assert names(tmp_path) == ["step-000000001"]


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        (signal.SIGKILL, 1),
        *(
            pytest.param(kind, seed, marks=pytest.mark.exhaustive)
            for kind, seed in product(
                (signal.SIGTERM, signal.SIGINT, signal.SIGKILL), range(1, 12)
            )
            if (kind, seed) != (signal.SIGKILL, 1)
        ),
    ],
)
def test_killed_at_random_moments_it_ends_with_the_same_weights(
    release: Path, tmp_path: Path, untouched: Path, kind: int, seed: int
) -> None:
    n_killed, out = 0, tmp_path / "saes"
    while train(
        1, release, out, before={0: (signal_amid_work, (kind, f"{seed}:{n_killed}"))}
    ) != [0]:
        assert not half_written(out)
        assert left(out)[1] <= 1  # partial one: the next start has removed the one before it
        n_killed += 1
        assert n_killed < 1000, "It does not come to an end."
    assert n_killed >= 3
    assert hashes(out) == hashes(untouched)
    assert not (out / ".training").exists()


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_killed_at_any_operation_on_a_file_it_ends_with_the_same_weights(
    release: Path, tmp_path: Path, every: int
) -> None:
    short = {"language_model.training_tokens": 100, "sae.k_anneal_steps": 1}
    options = [*as_options(short), "--only", IDS[0]]
    untouched = tmp_path / "untouched"
    assert train(1, release, untouched, *options, minutes=0) == [0]
    for number in count(1, every):
        out = tmp_path / f"operation-{number}"
        before = {0: (kill_at_file_operation, (out, number))}
        if train(1, release, out, *options, before=before) == [0]:
            break
        assert not half_written(out)
        assert train(1, release, out, *options) == [0]
        assert hashes(out) == hashes(untouched)
    assert number > 60


def test_killed_while_it_saves_several_saes_it_ends_with_the_same_weights(
    tmp_path: Path, of_model: Path
) -> None:
    out, options = tmp_path / "saes", as_options(SMALL)
    before = {0: (signal_after_naming, (out, "width_512/*", 2, signal.SIGKILL))}
    assert train(1, MINILM, out, *options, before=before) == [-9]
    assert left(out)[2] == 2
    assert train(1, MINILM, out, *options) == [0]
    assert "from step 4 of 4." in told(out)
    assert hashes(out) == hashes(of_model)


@pytest.mark.parametrize(("kind", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_behind_the_last_step_ends_it_and_it_is_continued(
    release: Path, out: Path, untouched: Path, kind: int, status: int
) -> None:
    before = {0: (signal_behind_the_last_step, (kind,))}
    assert train(1, release, out, before=before, minutes=0) == [status]
    assert left(out) == (1, 0, 0)
    assert train(1, release, out, minutes=0) == [0]
    assert f"from step {STEPS} of {STEPS}." in told(out)
    assert hashes(out) == hashes(untouched)


def test_without_room_for_the_weights_it_fails_and_is_continued(
    release: Path, untouched: Path, stopped: Path
) -> None:
    assert train(1, release, stopped, before={0: (limit_file_size, (10_000,))}) == [1]
    assert not half_written(stopped)
    assert left(stopped)[0] >= 1
    assert left(stopped)[1:] == (0, 0)
    assert train(1, release, stopped) == [0]
    assert hashes(stopped) == hashes(untouched)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(
    release: Path, untouched: Path, stopped: Path
) -> None:
    newest = checkpoints(stopped)[-1]
    victim = newest / IDS[0] / "trainer_state.pt"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    assert train(1, release, stopped) == [0]
    said = told(stopped)
    assert f"{newest} is damaged" in said
    assert f"from step {int(newest.name.removeprefix('step-')) - 1:,} of" in said
    assert hashes(stopped) == hashes(untouched)


def test_what_a_checkpoint_is_not_of_is_refused(release: Path, stopped: Path) -> None:
    before = sorted((stopped / ".training").rglob("*"))
    cases = [
        ({}, {}, False, "`resume` should be given: .* stopped at step"),
        ({"sae.k": 5}, {}, True, r"`saes.layer_0/batchtopk_c2r.k = 5`, and 4 there"),
        (
            {"language_model.training_tokens": 450},
            {},
            True,
            "`source.training_tokens = 450`, and 1200 there",
        ),
        (
            {},
            {"only": IDS[1:]},
            True,
            "should have the SAEs of .*layer_0/batchtopk_c2r, .* Found",
        ),
    ]
    for changes, chosen, resume, says in cases:
        plan = make_plan(read_release(release, overrides=changes), device="cpu", **chosen)
        with pytest.raises(UserError, match=says):
            train_plan(plan, stopped, resume=resume)
        train_plan(plan, stopped, resume=resume, dry_run=True)  # which touches nothing
    assert sorted((stopped / ".training").rglob("*")) == before


def test_two_processes_do_not_train_into_one_folder(release: Path, out: Path) -> None:
    [process] = start(1, release, out, before={0: after_checkpoints(out, 1, signal.SIGSTOP)})
    while not checkpoints(out):
        assert process.poll() is None
        time.sleep(0.02)
    with pytest.raises(UserError, match="no other process"):
        train_plan(make_plan(read_release(release), device="cpu"), out, resume=True)
    process.kill()
    process.wait()


def test_a_grid_of_a_language_model_is_killed_twice_and_ends_with_the_same_weights(
    tmp_path: Path,
) -> None:
    """More than one buffer of activations, and text that is read ahead."""
    longer = {"language_model.training_tokens": 4096, "runner.prefetch_llm_batches": 2}
    longer["runner.autocast"] = True
    options = as_options({**SMALL, **longer})
    untouched, out = tmp_path / "untouched", tmp_path / "saes"
    assert train(1, MINILM, untouched, *options, minutes=0) == [0]
    for kind, status in ((signal.SIGKILL, -9), (signal.SIGTERM, 143)):
        before = {0: after_checkpoints(out, 2, kind)}
        assert train(1, MINILM, out, *options, before=before) == [status]
    assert train(1, MINILM, out, *options) == [0]
    assert len(hashes(out)) == 8
    assert hashes(out) == hashes(untouched)
