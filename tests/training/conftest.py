"""SAEs trained by one process, to compare other trainings with."""

from pathlib import Path

import pytest

from tests.language_model import saved_model
from tests.releases.test_files import write
from tests.training.killing import IDS, MINILM, RELEASE, SMALL, STEPS, as_options, hashes
from tests.training.rank_processes import train


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = saved_model(50 * STEPS)
    return write(tmp_path_factory.mktemp("release"), language_model=source, **RELEASE)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where a test trains to."""
    return tmp_path / "saes"


@pytest.fixture(scope="session")
def untouched(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SAEs of a training that nothing happened to."""
    out = tmp_path_factory.mktemp("untouched") / "saes"
    assert train(1, release, out, minutes=0) == [0]
    assert len(hashes(out)) == 2 * len(IDS)
    return out


@pytest.fixture(scope="session")
def of_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four SAEs of a language model, trained likewise."""
    out = tmp_path_factory.mktemp("of-model") / "saes"
    assert train(1, MINILM, out, *as_options(SMALL), minutes=0) == [0]
    assert len(hashes(out)) == 8
    return out
