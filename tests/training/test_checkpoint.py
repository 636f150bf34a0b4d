"""Checkpoints on disk: how many are kept, and which is the newest that is whole."""

from pathlib import Path

import pytest

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.training.output_dir import KEPT, Checkpoints


def fill(folder: Path) -> list[Path]:
    (folder / "sae").mkdir()
    (folder / "sae" / "weights").write_text("weights")
    return [folder / "sae"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def never(damage: str) -> None:
    pytest.fail(damage)


def test_the_newest_are_kept_and_the_last_is_continued(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "work")
    assert checkpoints.newest(on_damage=never) is None
    for step in range(1, KEPT + 3):
        assert checkpoints.write(step, {"seconds": step}, fill).name == f"step-{step:09d}"
    assert names(tmp_path / "work") == [f"step-{step:09d}" for step in (3, 4)]
    newest = checkpoints.newest(on_damage=never)
    assert newest is not None
    assert (newest.step, newest.about) == (4, {"seconds": 4})
    assert (newest.folder / "sae" / "weights").read_text() == "weights"
    checkpoints.remove_all()
    assert names(tmp_path / "work") == []


def test_damaged_ones_are_put_aside_each_under_a_name_of_its_own(tmp_path: Path) -> None:
    checkpoints, told = Checkpoints(tmp_path), []
    for _ in range(2):
        checkpoints.write(7, {}, fill)
        (tmp_path / "step-000000007" / "sae" / "weights").write_text("other")
        with pytest.raises(UserError, match=r"No checkpoint in .* is whole"):
            checkpoints.newest(on_damage=told.append)
    assert len(names(tmp_path)) == 2
    assert all(name.startswith("damaged-step-000000007-") for name in names(tmp_path))
    assert all("sae/weights is not what was written" in damage for damage in told)


def test_what_cannot_be_written_leaves_those_before_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, {}, fill)

    def fail(folder: Path) -> list[Path]:
        fill(folder)
        raise RuntimeError("torch is at a loss")

    with pytest.raises(OSError, match=r"cannot be written\. torch is at a loss"):
        checkpoints.write(2, {}, fail)
    assert names(tmp_path) == ["step-000000001"]
