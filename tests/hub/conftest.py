"""A loopback Hub for each test, and SAEs that are ready to be sent to it."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from huggingface_hub import HfApi, constants

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub import card, uploading
from sae_lens_c2r.hub.card import pictures
from sae_lens_c2r.hub.local_saes import LocalSAE, Submission, check_saes
from sae_lens_c2r.hub.proposal import Target
from sae_lens_c2r.hub.repo_record import RepoRecord
from tests import forkserver
from tests.evaluation.planted import plant_sae
from tests.hub.server import ONLINE, TOKEN, File, LoopbackHub, serving

REPO = "me/saes"
CFG, WEIGHTS, RECORD = "cfg.json", "sae_weights.safetensors", "training.json"
Checked = Callable[..., list[LocalSAE]]


def say(folder: Path, record: Any = None, **metadata: Any) -> Path:
    """Write what training recorded of an SAE, or change its config's metadata."""
    if record is not None:
        (folder / RECORD).write_text(json.dumps(record))
    known = json.loads((folder / CFG).read_text())["metadata"] if metadata else {}
    return set_field(folder, metadata=changed(known, metadata)) if metadata else folder


def changed(known: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """With other values, of which an ellipsis stands for a key that is removed."""
    return {key: each for key, each in {**known, **values}.items() if each is not ...}


def set_field(folder: Path, **values: Any) -> Path:
    """Change an SAE's config."""
    config = json.loads((folder / CFG).read_text())
    (folder / CFG).write_text(json.dumps(changed(config, values)))
    return folder


def link_to_blobs(snapshot: Path) -> Path:
    """Make a snapshot what the Hub's client keeps: links into the blobs of its repository."""
    blobs = snapshot.parent.parent / "blobs"
    blobs.mkdir()
    for path in [path for path in snapshot.rglob("*") if path.is_file()]:
        content = path.read_bytes()
        blob = path.rename(blobs / File(len(content), content).oid)
        path.symlink_to(os.path.relpath(blob, path.parent))
    return snapshot


def run_client(hub: LoopbackHub, *arguments: Any, home: Path, **more: str) -> tuple[int, str]:
    """Run Python with the Hub as its own, from beside an empty cache; its status and words."""
    env = {**hub.environment(), "HF_HOME": str(home), **more}
    ran = forkserver.run(*arguments, env=env, cwd=home.parent)
    output = ran.stdout + ran.stderr
    assert TOKEN not in output
    return ran.returncode, output


def refusal(
    call: Callable[..., Any], *arguments: Any, of: type[Exception] = UserError, **options: Any
) -> str:
    """The text with which a call is refused, and which tells no token."""
    with pytest.raises(of) as error:
        call(*arguments, **options)
    assert TOKEN not in str(error.value)
    return str(error.value)


@cache
def pictures_of(facts: str) -> dict[str, bytes]:
    return pictures(RepoRecord.read(facts))


def send(saes: Sequence[LocalSAE], api: HfApi, **options: Any) -> Any:
    """Upload SAEs that were checked before, with pictures drawn once: both take long."""

    def taken(kind: Any) -> dict[str, Any]:
        names = {field.name for field in fields(kind)} & options.keys()
        return {name: options.pop(name) for name in names}

    target = Target(**{"repo_id": REPO, **taken(Target)})
    said = Submission([Path("checked")], **taken(Submission))
    with (
        patch.object(uploading, "check_saes", lambda *_: saes),
        patch.object(card, "pictures", lambda facts: pictures_of(facts.to_json())),
    ):
        return uploading.upload(said, target, api=api, **options)


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
    for name, value in ONLINE.items():
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
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "snapshots"))
    return hub


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    """Plants SAEs by their ids and checks them, once for all tests that want the same."""
    known: dict[tuple[str, ...], list[LocalSAE]] = {}

    def check(*sae_ids: str) -> list[LocalSAE]:
        if sae_ids not in known:
            folder = tmp_path_factory.mktemp("checked")
            for seed, sae_id in enumerate(sae_ids):
                plant_sae(folder / "saes" / sae_id, d_in=8, seed=seed)
            known[sae_ids] = check_saes(Submission([folder / "saes"]), folder / "scratch")
        return known[sae_ids]

    return check
