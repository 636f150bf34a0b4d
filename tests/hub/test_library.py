"""The Hub from Python: a function, a place, and what is said of the SAEs."""

import json
from pathlib import Path

import pytest
import torch
from huggingface_hub import HfApi
from sae_lens import SAE

import sae_lens_c2r.hub
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub import Submission, Target, show_proposal, upload, write_card
from sae_lens_c2r.hub.folder import planned_card
from sae_lens_c2r.hub.proposal import Proposal
from sae_lens_c2r.releases.files import find_release, read_release
from tests.evaluation.planted import plant_sae
from tests.hub.conftest import REPO
from tests.hub.server import Account, Fault, LoopbackHub

PUBLIC = {"Submission", "Target", "load", "show_proposal", "upload", "write_card"}


def test_public_names_are_these() -> None:
    assert set(sae_lens_c2r.hub.__all__) == PUBLIC
    for name in PUBLIC:  # also once their modules are imported, whose names are others
        assert getattr(sae_lens_c2r.hub, name).__doc__
        assert callable(getattr(sae_lens_c2r.hub, name))
    with pytest.raises(AttributeError, match="no attribute 'uplaod'"):
        _ = sae_lens_c2r.hub.uplaod


def test_folders_are_sent_without_asking(hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    plant_sae(tmp_path / "saes" / "a", d_in=8)
    published = upload([tmp_path / "saes"], Target(REPO), api=api, check_published=False)
    assert published is not None
    files = hub.repos[REPO].commits[published.commit].files
    assert {"a/cfg.json", "a/sae_weights.safetensors", "README.md"} <= files.keys()


def test_saes_in_memory_are_sent_with_what_is_said_of_them(
    hub: LoopbackHub, api: HfApi, tmp_path: Path
) -> None:
    sae = SAE.load_from_disk(plant_sae(tmp_path / "a", d_in=8))
    published = upload(Submission({"x/y": sae}, license="mit"), Target(REPO), api=api)
    assert published is not None
    files = hub.repos[REPO].commits[published.commit].files
    assert "x/y/cfg.json" in files
    card = files["README.md"].content
    assert card is not None
    assert b"license: mit" in card
    torch.testing.assert_close(sae.W_dec, SAE.load_from_disk(tmp_path / "a").W_dec)


def test_a_card_is_written_of_what_would_be_sent(
    api: HfApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card of a folder is that of an upload, which says what it would do."""
    plant_sae(tmp_path / "saes" / "a", d_in=8)
    said = Submission([tmp_path / "saes"], license="mit")
    path = write_card(said, tmp_path / "card", repo_id=REPO)
    shown: list[Proposal] = []

    def refuse(proposal: Proposal) -> bool:
        shown.append(proposal)
        show_proposal(proposal)
        return False

    assert upload(said, Target(REPO), confirm=refuse, api=api) is None
    [card] = [f for f in shown[0].difference.files if f.path_in_repo == "README.md"]
    facts = shown[0].prepared.content.facts
    assert isinstance(card.content, bytes)
    sent, written = card.content.decode(), path.read_text()
    for model in facts.base_models:  # which the Hub was asked for
        sent = sent.replace(f"base_model: {model}\n", "")
    assert written.split("## Training")[0] == sent.split("## Training")[0]
    assert sorted(p.name for p in (tmp_path / "card").iterdir()) == [
        "README.md",
        "figures",
        "sae-lens-c2r.json",
    ]
    printed = capsys.readouterr().out
    assert f"{REPO} at main: private, to be made." in printed
    assert "a/sae_weights.safetensors" in printed


def test_a_card_is_of_a_repository(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="`repo-id` should be given"):
        write_card([tmp_path], tmp_path / "card")


def test_a_card_is_of_the_repository_that_training_recorded(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = plant_sae(tmp_path / "saes" / name, d_in=8)
        record = {"release": {"repo_id": "org/recorded"}}
        (folder / "training.json").write_text(json.dumps(record))
    assert "org/recorded" in write_card([tmp_path / "saes"], tmp_path / "card").read_text()
    (folder / "training.json").write_text(json.dumps({"release": {"repo_id": "org/other"}}))
    with pytest.raises(UserError, match="`repo-id` should be given"):
        write_card([tmp_path / "saes"], tmp_path / "card")


def test_a_folder_is_of_one_repository(tmp_path: Path) -> None:
    first, second = (
        plant_sae(tmp_path / name, d_in=8, seed=seed)
        for seed, name in enumerate(("first", "second"))
    )
    out = tmp_path / "card"
    write_card([first], out, repo_id="me/x")
    held = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as caught:
        write_card([second], out, repo_id="me/y")
    assert str(caught.value) == (
        "`out` should be a new folder, or one with the card of me/y. Found the card of me/x in "
        f"{out}."
    )
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == held
    card = write_card([second], out, repo_id="me/x").read_text()
    assert "first" in card, "what was there of the same repository is lost"
    assert "second" in card


def test_a_planned_card_takes_no_other_files_place(tmp_path: Path) -> None:
    release, other = (
        read_release(find_release(name)) for name in ("minilm-layer-3", "synth-sae-bench-4k")
    )
    card = planned_card(release, tmp_path)
    assert card == tmp_path / "README.md"
    written = card.read_text()
    assert planned_card(release, tmp_path).read_text() == written
    measured = write_card(
        [plant_sae(tmp_path / "sae", d_in=8)], tmp_path / "measured", repo_id=release.repo_id
    )
    others = (b"# My project\n", f"{written}\nMine.\n".encode(), b"\xff", measured.read_bytes())
    for content in (*others, planned_card(other, tmp_path / "other").read_bytes()):
        card.write_bytes(content)
        with pytest.raises(UserError) as caught:
            planned_card(release, tmp_path)
        assert str(caught.value) == (
            "`out` should be a new file or folder, or the planned card of minilm-layer-3. "
            f"Found another file, {card}, which would be lost."
        )
        assert card.read_bytes() == content


def test_the_model_of_an_sae_that_was_trained_from_a_folder_can_be_named(
    tmp_path: Path,
) -> None:
    folder = plant_sae(tmp_path / "a", d_in=8)
    config = json.loads((folder / "cfg.json").read_text())
    config["metadata"]["model_name"] = str(tmp_path / "model")
    (folder / "cfg.json").write_text(json.dumps(config))
    card = write_card(Submission([folder]), tmp_path / "card", repo_id="me/saes").read_text()
    assert "base_model" not in card
    said = Submission([folder], base_model="org/model")
    card = write_card(said, tmp_path / "other", repo_id="me/saes").read_text()
    assert "base_model: org/model" in card
    assert 'model_name = "org/model"' in card


def test_a_submission_is_one_value(tmp_path: Path) -> None:
    release = read_release(find_release("minilm-layer-3"))
    said = Submission([tmp_path], release, tmp_path / "evaluation.json", "mit")
    assert Submission.of(said) is said
    assert Submission.of([tmp_path]) == Submission([tmp_path])
    for license in ("other", "MIT", "apache", "mit-2.0", "no such"):
        with pytest.raises(UserError, match="`license` should be one of the Hub's"):
            Submission([tmp_path], license=license)
    with pytest.raises(UserError, match=r"Found 'apache-2'\. Is it apache-2\.0"):
        Submission([tmp_path], license="apache-2")
    for license in ("gemma", "llama3.1", "openrail++", "cc0-1.0"):
        assert Submission([tmp_path], license=license).license == license
    for model in ("gpt2", "/models/gpt2", "a/b/c"):
        with pytest.raises(UserError, match="`base-model` should be a model on the Hub"):
            Submission([tmp_path], base_model=model)
    with pytest.raises(UserError, match="`saes` should be folders"):
        Submission({})
    for wrong in ("saes", tmp_path, [str(tmp_path)], [tmp_path, "b"]):
        with pytest.raises(UserError, match="`saes` should be a list of `Path`"):
            Submission(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("account", "reason"),
    [
        (
            Account("me", role="fineGrained", writable=("me/others",)),
            f"is fine-grained and lacks write access to {REPO}: add `repo.write`",
        ),
        (Account("me"), f"me should have write access to {REPO}"),
    ],
)
def test_the_hub_says_whether_a_token_may_write(
    hub: LoopbackHub, api: HfApi, tmp_path: Path, account: Account, reason: str
) -> None:
    api.create_repo(REPO, private=True)
    hub.accounts["hf_other"] = account
    hub.fault = lambda seen: (
        Fault(403) if account.role == "write" and "/auth-check" in seen.path else None
    )
    plant_sae(tmp_path / "a", d_in=8)
    before = len(hub.log)
    with pytest.raises(UserError, match=reason):
        upload([tmp_path / "a"], Target(REPO), api=HfApi(hub.endpoint, token="hf_other"))
    assert not [seen for seen in hub.log[before:] if seen.writes]
