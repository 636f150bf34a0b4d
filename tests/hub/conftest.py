"""A loopback Hub for each test, and SAEs that are ready to be sent to it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants

from sae_lens_c2r.hub.local.prepare_upload import PreparedUpload, prepare_upload
from sae_lens_c2r.hub.submission import Submission
from tests.evaluation.planted import plant_sae
from tests.hub.server import TOKEN, LoopbackHub, serving

REPO = "me/saes"


@pytest.fixture(scope="module", autouse=True)
def forked_here(forked: None) -> None:
    """Every process that has SAELens alone is forked."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LoopbackHub]:
    """A Hub of its own."""
    (tmp_path / "storage").mkdir()
    with serving(tmp_path / "storage") as running:
        yield running


@pytest.fixture
def api(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> HfApi:
    """The client of one who may write, in this process."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    for name, value in {"HF_HUB_DISABLE_XET": "1", "NO_PROXY": "*"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return HfApi(hub.endpoint, token=TOKEN)


@pytest.fixture
def hub_here(
    hub: LoopbackHub, api: HfApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> LoopbackHub:
    """The Hub that SAELens asks in this process."""
    assert api.endpoint == hub.endpoint
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    return hub


@pytest.fixture(scope="session")
def prepared_as(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., PreparedUpload]:
    """Gathers planted SAEs by their ids, once for all tests that want the same."""
    known: dict[tuple[str, ...], PreparedUpload] = {}

    def prepared(*sae_ids: str) -> PreparedUpload:
        if sae_ids not in known:
            folder = tmp_path_factory.mktemp("prepared")
            for seed, sae_id in enumerate(sae_ids):
                plant_sae(folder / "saes" / sae_id, d_in=8, seed=seed)
            submission = Submission([folder / "saes"])
            known[sae_ids] = prepare_upload(submission, REPO, scratch=folder / "scratch")
        return known[sae_ids]

    return prepared
