"""SAEs that start from SAEs on the Hub."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sae_lens import SAE
from sae_lens.loading.pretrained_saes_directory import (
    PretrainedSAELookup,
    get_pretrained_saes_directory,
)
from sae_lens.saes.sae import SAEMetadata

from sae_lens_c2r.hub import Submission, write_card
from sae_lens_c2r.hub.local_saes import check_saes, repo_record
from sae_lens_c2r.releases.from_sae import release_from
from sae_lens_c2r.releases.model import FACTS
from sae_lens_c2r.saes.origins import pin
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.train import train
from tests.evaluation.planted import plant_sae
from tests.hub.conftest import say
from tests.hub.server import LoopbackHub
from tests.saes.forms import K, make_form
from tests.training.test_starts import LANGUAGE_MODEL, of_model, plan_of

SCOPE, REPO = "gemma-scope-tiny", "google/gemma-scope-2b-pt-res"
SAE_ID, PATH = "layer_1/width_16k/canonical", "layer_1/width_16k/average_l0_3"


@pytest.fixture
def scope(hub_here: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small SAE of Gemma Scope's, known to SAELens's directory; its commit."""
    known = ("expected_var_explained", "expected_l0", "neuronpedia_id", "norm_scaling_factor")
    lookup = PretrainedSAELookup(
        *(SCOPE, REPO, "gemma-2-2b", "gemma_2"),
        saes_map={SAE_ID: PATH},
        config_overrides={"d_in": 6, "d_sae": 10},
        **{name: {} for name in known},
    )
    monkeypatch.setitem(get_pretrained_saes_directory(), SCOPE, lookup)
    card = b"---\nlicense: cc-by-4.0\n---\n"
    sae, npz = make_form("jumprelu", apply_b_dec_to_input=False), BytesIO()
    weights = {  # of bfloat16, as Gemma Scope has them
        name: value.detach().bfloat16().float().numpy()
        for name, value in sae.named_parameters()
    }
    np.savez(npz, **weights)
    return hub_here.put(REPO, {f"{PATH}/params.npz": npz.getvalue(), "README.md": card})


def test_gemma_scope_is_pinned_with_its_commit_and_licence(scope: str) -> None:
    origin, sae = pin(SAERef(release=SCOPE, sae_id=SAE_ID))
    assert (origin.repo, origin.revision) == (REPO, scope)
    assert origin.license == "cc-by-4.0"
    assert list(origin.sha256) == ["params.npz"]
    assert sae.cfg.architecture() == "jumprelu"
    assert sae.threshold.unique().numel() > 5  # each latent has its own


def test_a_release_starts_from_gemma_scope(tmp_path: Path, scope: str) -> None:
    init = {"release": SCOPE, "sae_id": SAE_ID}
    plan = plan_of(tmp_path, init, "batchtopk_c2r", k=K, **of_model(context_size=1024))
    config: Any = plan.saes["batchtopk_c2r"]
    assert (config.d_in, config.d_sae, config.k) == (6, 10, K)
    assert not config.apply_b_dec_to_input
    assert not config.rescale_acts_by_decoder_norm
    assert plan.starts["batchtopk_c2r"].revision == scope


def save(sae: SAE[Any], folder: Path) -> dict[str, bytes]:
    sae.save_model(folder)
    return {f"a/{path.name}": path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("named", [True, False])
def test_a_repository_is_read_at_its_revision(
    tmp_path: Path, hub_here: LoopbackHub, named: bool
) -> None:
    first = hub_here.put("org/saes", save(make_form("jumprelu", d_in=8), tmp_path / "1"))
    hub_here.put("org/saes", save(make_form("jumprelu", d_in=8, seed=1), tmp_path / "2"))
    init = {"repo": "org/saes", "sae_id": "a"}
    newest = plan_of(tmp_path, init, "batchtopk", k=K)
    older = plan_of(tmp_path, {**init, "revision": first}, "batchtopk", k=K)
    shown = older if named else newest
    _, started = pin(shown.starts["batchtopk"])
    expected = make_form("jumprelu", d_in=8, seed=0 if named else 1)
    torch.testing.assert_close(started.W_dec, expected.W_dec)
    assert started.cfg.metadata.to_dict() == expected.cfg.metadata.to_dict()
    # What the repository gets after the plan was made is not begun with.
    hub_here.put("org/saes", save(make_form("jumprelu", d_in=8, seed=2), tmp_path / "3"))
    _, started = pin(shown.starts["batchtopk"])
    torch.testing.assert_close(started.W_dec, expected.W_dec)
    [trained] = train(shown, tmp_path / "out")
    assert (trained / "training.json").is_file()


def test_a_strangers_files_do_not_decide_that_code_of_a_repository_is_run(
    tmp_path: Path, hub_here: LoopbackHub
) -> None:
    trusting = SAEMetadata(
        model_from_pretrained_kwargs={"trust_remote_code": True, "revision": "v1"}
    )
    hub_here.put("org/own", save(make_form("jumprelu", metadata=trusting), tmp_path / "sae"))
    source = SAERef(release="org/own", sae_id="a")
    asked = {f"language_model.{key}": value for key, value in LANGUAGE_MODEL.items()}
    release, _ = release_from(source, "mine", tokens=4096, changes=asked)
    assert not [key for key in release.runner if "trust" in key]
    assert not release.runner.get("model_from_pretrained_kwargs")
    loaded = source.load("cpu").cfg.metadata
    assert loaded.model_from_pretrained_kwargs == {"revision": "v1"}


def recorded(place: Path, **changed: Any) -> Path:
    """An SAE whose training says that it started from one of Gemma Scope's."""
    started = {
        "release": SCOPE,
        "repo": REPO,
        "sae_id": PATH,
        "revision": "c0ffee" * 6 + "abcd",
    }
    started |= {"sha256": {"params.npz": "ab" * 32}, "license": "cc-by-4.0", **changed}
    record = {"license": "mit", "sae_id": "a", "started_from": started}
    say(plant_sae(place / "saes" / "a", d_in=8), record)
    return place / "saes"


def card_of(saes: Path) -> tuple[str, str]:
    """The card of SAEs, and the facts beside it."""
    card = write_card([saes], saes.parent / "card", repo_id="me/saes")
    return card.read_text(), card.with_name(FACTS).read_text()


def test_a_card_tells_what_an_sae_started_from(tmp_path: Path) -> None:
    card, facts = card_of(recorded(tmp_path))
    assert (
        f"Started from `{PATH}` of [{REPO}](https://huggingface.co/{REPO}) at the commit "
        f"c0ffeec0 (under cc-by-4.0; SHA-256 of params.npz {'ab' * 32})" in card
    )
    started = json.loads(facts)["saes"]["a"]["started_from"]
    assert started["revision"].startswith("c0ffee")
    # And no place of this machine.
    here = {"repo": None, "release": None, "sae_id": None, "folder": "/home/me/secret"}
    saes = recorded(tmp_path / "other", **here, revision=None, license=None)
    card, facts = card_of(saes)
    assert "Started from another SAE (under an unknown licence; SHA-256 of" in card
    assert "secret" not in card + facts


@pytest.mark.parametrize("given", [None, "cc-by-4.0"])
def test_the_licence_that_is_given_or_recorded_is_copied(
    given: str | None, tmp_path: Path
) -> None:
    """Whatever that of the start: whether it allows this is not for a program to judge."""
    said = Submission([recorded(tmp_path, license="cc-by-nc-nd-4.0")], license=given)
    facts = repo_record(said, check_saes(said, tmp_path / "scratch"), "me/saes")
    assert facts.license == (given or "mit")
