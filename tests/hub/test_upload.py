"""An upload from end to end, against the loopback Hub."""

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import HfApi, constants

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.card.readme import BEGIN, END, Readme
from sae_lens_c2r.hub.local.prepare_upload import PreparedUpload, prepare_upload
from sae_lens_c2r.hub.names import FACTS, README
from sae_lens_c2r.hub.proposal import Proposal
from sae_lens_c2r.hub.submission import Submission
from sae_lens_c2r.hub.target import Target
from sae_lens_c2r.hub.uploading import upload
from tests import forkserver
from tests.evaluation.planted import plant_sae
from tests.hub.conftest import REPO
from tests.hub.server import STORAGE_HOST, TOKEN, Account, Fault, File, LoopbackHub, Seen

Prepare = Callable[..., PreparedUpload]


def send_all(
    api: HfApi, prepared: PreparedUpload, target: Target | None = None, **options: Any
):
    options = {"check_published": False, **options}
    return upload(prepared, target or Target(REPO), api=api, **options)


def knowing(prepared: PreparedUpload, **facts: Any) -> PreparedUpload:
    content = prepared.content
    changed = replace(content, facts=content.facts.model_copy(update=facts))
    return replace(prepared, content=changed)


def text(hub: LoopbackHub, path: str, branch: str = "main") -> str:
    content = hub.repos[REPO].history(branch)[0].files[path].content
    assert content is not None
    return content.decode()


def refused(
    api: HfApi, prepared: PreparedUpload, target: Target | None = None, **options: Any
) -> str:
    with pytest.raises(UserError) as error:
        send_all(api, prepared, target, **options)
    assert TOKEN not in str(error.value)
    return str(error.value)


def test_saes_and_their_card_are_one_commit(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    published = send_all(api, prepared_as("a", "b/c"), check_published=True)
    repo = hub.repos[REPO]
    assert [commit.title for commit in repo.history()] == ["Add 2 SAEs", "initial commit"]
    assert set(repo.history()[0].files) == {
        ".gitattributes",
        README,
        FACTS,
        "a/cfg.json",
        "a/sae_weights.safetensors",
        "b/c/cfg.json",
        "b/c/sae_weights.safetensors",
        "figures/max_cosines.png",
    }
    assert repo.private
    assert published.commit == repo.history()[0].oid
    assert yaml.safe_load(Readme.read(text(hub, README)).front)["base_model"] == (
        "EleutherAI/pythia-70m-deduped"
    )
    assert not [seen for seen in hub.log if seen.host == STORAGE_HOST and seen.authorization]


def test_a_dry_run_writes_nothing(hub: LoopbackHub, api: HfApi, prepared_as: Prepare) -> None:
    shown: list[Proposal] = []
    prepared = prepared_as("a", "b/c")
    assert (
        send_all(api, prepared, confirm=lambda proposal: bool(shown.append(proposal))) is None
    )
    assert hub.log
    assert not [seen for seen in hub.log if seen.writes]
    assert shown[0].difference.snapshot.private is None
    assert "+# saes" in shown[0].card_diff
    send_all(api, prepared)
    hub.log.clear()
    send_all(api, prepared_as("d"), confirm=lambda proposal: bool(shown.append(proposal)))
    assert not [seen for seen in hub.log if seen.writes]
    assert shown[1].difference.replaced == {README, FACTS, "figures/max_cosines.png"}
    assert "+| `d` |" in shown[1].card_diff
    assert "-# saes" not in shown[1].card_diff


def test_a_second_time_there_is_nothing_to_do(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    send_all(api, prepared_as("a"))
    hub.log.clear()
    published = send_all(api, prepared_as("a"))
    assert published.sent == 0
    assert not [seen for seen in hub.log if seen.writes]


def test_the_card_grows_and_keeps_foreign_words(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    send_all(api, prepared_as("a"))
    foreign = text(hub, README).replace("\n# saes\n", "\n# Mine\n\nBefore.\n") + "\nAfter.\n"
    foreign = foreign.replace("---\n", "---\n# a comment\nmine: {x: [1, 'two']}\n", 1)
    repo = hub.repos[REPO]
    files = {**repo.history()[0].files, README: File(len(foreign), foreign.encode())}
    repo.branches["main"] = repo.add(repo.history()[0], "by hand", files).oid
    send_all(api, prepared_as("b", "c"))
    card = text(hub, README)
    assert all(f"| `{sae_id}` |" in card for sae_id in "abc")
    before, rest = card.split(BEGIN)
    assert (
        before
        == foreign.split(BEGIN)[0].split("model-index:")[0]
        + before[before.index("model-index:") :]
    )
    assert "# a comment\nmine: {x: [1, 'two']}\n" in before
    assert before.endswith("# Mine\n\nBefore.\n\n")
    assert rest.split(END)[1] == "\n\nAfter.\n"
    assert set(json.loads(text(hub, FACTS))["saes"]) == {"a", "b", "c"}
    assert len(yaml.safe_load(Readme.read(card).front)["model-index"]) == 3


def test_two_uploads_at_once_share_one_card(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    send_all(api, prepared_as("a"))

    def another(seen: Seen) -> None:
        if "/preupload/" in seen.path:
            hub.fault = lambda _: None
            send_all(api, prepared_as("b", "c"))

    hub.fault = another
    send_all(api, prepared_as("d"))
    assert set(json.loads(text(hub, FACTS))["saes"]) == {"a", "b", "c", "d"}
    assert all(f"| `{sae_id}` |" in text(hub, README) for sae_id in "abcd")
    titles = [commit.title for commit in hub.repos[REPO].history()]
    assert titles == ["Add d", "Add 2 SAEs", "Add a", "initial commit"]


def test_branches_tags_and_proposals(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    target = Target(REPO, revision="next", tag="v1", public=True)
    published = send_all(api, prepared_as("a"), target, check_published=True)
    repo = hub.repos[REPO]
    assert not repo.private
    assert repo.tags == {"v1": published.commit}
    assert repo.branches["next"] == published.commit != repo.branches["main"]
    assert send_all(api, prepared_as("a"), target).sent == 0  # the tag is where it should be
    assert "`tag` should be new. Found v1" in refused(
        api, prepared_as("b", "c"), Target(REPO, tag="v1")
    )
    proposed = send_all(
        api, prepared_as("a"), Target(REPO, create_pr=True), check_published=True
    )
    assert proposed.url == f"{hub.endpoint}/{REPO}/discussions/1"
    assert list(repo.history()[0].files) == [".gitattributes"]


@pytest.mark.parametrize(
    "names",
    [
        {"repo_id": "saes"},
        {"repo_id": "me/../saes"},
        {"repo_id": "me/saes.git"},
        {"repo_id": "a/b/c"},
        {"repo_id": "me/säe"},
        {"repo_id": REPO, "revision": "a b"},
        {"repo_id": REPO, "revision": "../main"},
        {"repo_id": REPO, "revision": "refs/pr/1"},
        {"repo_id": REPO, "revision": "0" * 40},
        {"repo_id": REPO, "tag": "HEAD"},
        {"repo_id": REPO, "tag": "x.lock/y"},
        {"repo_id": REPO, "tag": ""},
        {"repo_id": REPO, "tag": "v1", "create_pr": True},
    ],
)
def test_names_are_looked_at_first(names: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^`(repo-id|revision|tag)` should"):
        Target(**names)


@pytest.mark.parametrize(
    ("account", "reason"),
    [
        (None, "There is no token, or the Hub does not accept it"),
        (Account("me", role="read"), "should have the role `write`. Found `read`"),
        (Account("me", role="fineGrained"), "lacks write access to the repositories of me"),
        (Account("you", ("your-lab",)), "`repo-id` should be of you or your-lab"),
    ],
)
@pytest.mark.usefixtures("api")
def test_what_an_account_may_is_told_before_anything_is_sent(
    hub: LoopbackHub, prepared_as: Prepare, account: Account | None, reason: str
) -> None:
    token = "hf_another"
    if account is not None:
        hub.accounts[token] = account
    other = HfApi(hub.endpoint, token=token)
    assert reason in refused(other, prepared_as("a"))
    assert not [seen for seen in hub.log if seen.writes]
    assert not hub.repos


def test_a_fine_grained_token_is_enough_for_its_repository(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    send_all(api, prepared_as("a"))
    hub.accounts["hf_fine"] = Account("me", role="fineGrained", writable=(REPO,))
    assert send_all(HfApi(hub.endpoint, token="hf_fine"), prepared_as("b", "c")).sent > 0


def test_what_the_hub_does_not_have_is_left_out(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    hub.known_models.clear()
    send_all(api, prepared_as("a"))
    metadata = yaml.safe_load(Readme.read(text(hub, README)).front)
    assert not {"base_model", "datasets"} & metadata.keys()


def test_a_gated_model_is_told(hub: LoopbackHub, api: HfApi, prepared_as: Prepare) -> None:
    said: list[str] = []
    prepared = prepared_as("a")
    send_all(api, knowing(prepared, base_models=["gemma-2-2b"]), tell=said.append)
    assert any("google/gemma-2-2b is gated" in line for line in said)
    assert "base_model: google/gemma-2-2b" in text(hub, README)


def test_the_licence_is_the_repositorys(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    send_all(api, knowing(prepared_as("a"), license="mit"))
    assert "license: mit" in text(hub, README)
    assert send_all(api, prepared_as("a")).sent == 0
    message = refused(api, knowing(prepared_as("b", "c"), license="apache-2.0"))
    assert "`license` should be that of README.md in the repository, mit" in message
    assert "`--license mit` confirms" in message


def test_weights_that_change_before_they_are_sent_are_not(
    hub: LoopbackHub, api: HfApi, tmp_path: Path
) -> None:
    folder = plant_sae(tmp_path / "a", d_in=8)
    prepared = prepare_upload(Submission([folder]), REPO, scratch=tmp_path / "scratch")

    def spoil(_: Proposal) -> bool:
        weights.write_bytes(content[:-4] + b"nan!")
        return True

    weights = folder / "sae_weights.safetensors"
    content = weights.read_bytes()
    assert "has changed since it was checked" in refused(api, prepared, confirm=spoil)
    weights.unlink()
    assert "has changed since it was checked" in refused(api, prepared)
    assert not hub.repos
    weights.write_bytes(content)

    def spoil_later(seen: Seen) -> None:
        if "/preupload/" in seen.path:
            weights.write_bytes(content[:-4] + b"nan!")

    hub.fault = spoil_later
    assert "has changed since it was checked" in refused(api, prepared)
    assert list(hub.repos[REPO].history()[0].files) == [".gitattributes"]


def test_uploads_in_turn_come_to_rest(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    for sae_ids in (("a",), ("b", "c"), ("a",), ("b", "c")):
        published = send_all(api, prepared_as(*sae_ids))
    assert published.sent == 0
    assert len(hub.repos[REPO].history()) == 3
    assert text(hub, README).count("- **composition") == 1


def test_models_of_several_uploads_are_all_named(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    send_all(api, prepared_as("a"))
    send_all(api, knowing(prepared_as("b", "c"), base_models=["google/gemma-2-2b"]))
    metadata = yaml.safe_load(Readme.read(text(hub, README)).front)
    assert metadata["base_model"] == ["EleutherAI/pythia-70m-deduped", "google/gemma-2-2b"]
    assert text(hub, README).count("whose own terms hold for the model") == 0  # no licence


def test_an_interruption_after_the_commit_says_what_is_missing(
    api: HfApi, prepared_as: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(HfApi, "create_tag", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"has everything.*not verified or tagged"):
        send_all(api, prepared_as("a"), Target(REPO, tag="v1"))


def test_a_revision_is_a_branch(hub: LoopbackHub, api: HfApi, prepared_as: Prepare) -> None:
    send_all(api, prepared_as("a"), Target(REPO, tag="v1"))
    target = Target(REPO, revision="v1")
    assert "`revision` should be a branch. Found the tag v1" in refused(
        api, prepared_as("b", "c"), target
    )
    assert list(hub.repos[REPO].branches) == ["main"]


def test_what_comes_back_wrong_is_told(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    a, b = prepared_as("a"), prepared_as("b", "c")

    def spoil(seen: Seen) -> None:
        if "/resolve/" in seen.path and len(hub.repos[REPO].commits) == 3:
            hub.fault = lambda _: None
            repo = hub.repos[REPO]
            files = dict(repo.history()[0].files)
            files["a/sae_weights.safetensors"] = File(
                b.saes[1].files[1].size, sha256=b.saes[1].files[1].sha256
            )
            repo.branches["main"] = repo.add(repo.history()[0], "spoilt", files).oid

    send_all(api, b)
    hub.fault = spoil
    message = refused(api, a, Target(REPO, tag="v1"), check_published=True)
    assert "has everything" in message
    assert "should have sae_weights.safetensors with the SHA-256" in message
    assert not hub.repos[REPO].tags


@pytest.mark.usefixtures("api")
def test_a_hub_that_is_not_there(prepared_as: Prepare) -> None:
    nowhere = HfApi("http://127.0.0.1:9", token=TOKEN)
    message = refused(nowhere, prepared_as("a"))
    assert message.startswith("Nothing was sent. The Hub does not answer: is there a network?")


def test_staying_offline_is_told(
    api: HfApi, prepared_as: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE should not be set" in refused(api, prepared_as("a"))


def test_a_full_disk_is_told(
    api: HfApi, prepared_as: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/tmp/x")

    send_all(api, prepared_as("a"))
    monkeypatch.setattr(HfApi, "hf_hub_download", full)
    assert "The disk is full: /tmp/x" in refused(api, prepared_as("b", "c"))


def test_an_interrupted_upload_tells_what_is_there(
    api: HfApi, prepared_as: Prepare, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = HfApi.create_commit

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def interrupt_later(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(HfApi, "create_commit", interrupt)
    with pytest.raises(KeyboardInterrupt, match=f"Nothing of this upload is on {REPO} yet"):
        send_all(api, prepared_as("a"))
    monkeypatch.setattr(HfApi, "create_commit", interrupt_later)
    with pytest.raises(KeyboardInterrupt, match=f"{REPO} has everything"):
        send_all(api, prepared_as("a"))
    assert send_all(api, prepared_as("a")).sent == 0


def test_a_tag_that_fails_is_told(hub: LoopbackHub, api: HfApi, prepared_as: Prepare) -> None:
    hub.fault = lambda seen: Fault(500) if "/tag/" in seen.path else None
    target = Target(REPO, tag="v1")
    message = refused(api, prepared_as("a"), target)
    assert "has everything" in message
    assert "tag v1 may not have been set: The Hub has answered 500" in message
    hub.fault = lambda _: None
    send_all(api, prepared_as("a"), target)
    assert list(hub.repos[REPO].tags) == ["v1"]


def test_a_repository_that_cannot_be_joined_with_is_left(
    hub: LoopbackHub, api: HfApi, prepared_as: Prepare
) -> None:
    send_all(api, prepared_as("b/c"))
    assert "An SAE should not lie in another one's folder" in refused(api, prepared_as("b"))
    repo = hub.repos[REPO]

    def put(path: str, content: bytes) -> None:
        files = {**repo.history()[0].files, path: File(len(content), content)}
        repo.branches["main"] = repo.add(repo.history()[0], "by hand", files).oid

    put(README, b"---\nlicense: [\n---\n")
    assert "README.md should have metadata in YAML" in refused(api, prepared_as("a"))
    put(README, b"\xff")
    assert "should be UTF-8" in refused(api, prepared_as("a"))
    put(README, f"{BEGIN} {BEGIN} {END}".encode())
    assert "once each" in refused(api, prepared_as("a"))
    put(README, b"")
    for content in (b"{", b"[]", b'{"format": 99}', b'{"format": 1, "saes": {"a": {}}}'):
        put(FACTS, content)
        assert FACTS in refused(api, prepared_as("a"))
    assert not [seen for seen in hub.log[-3:] if seen.writes]


def run(hub: LoopbackHub, home: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    process = forkserver.run(
        *("-m", "sae_lens_c2r", *arguments),
        env={
            **os.environ,
            "HF_ENDPOINT": hub.endpoint,
            "HF_TOKEN": TOKEN,
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "*",
            **environment,
        },
        cwd=home.parent,
    )
    output = process.stdout + process.stderr
    assert TOKEN not in output
    return process.returncode, output


def test_the_command_from_folders_to_from_pretrained(hub: LoopbackHub, tmp_path: Path) -> None:
    plant_sae(tmp_path / "saes" / "a", d_in=8)
    home = tmp_path / "home"
    status, output = run(hub, home, "upload", "saes", "--repo-id", REPO, "--dry-run")
    assert status == 0, output
    assert "Nothing was sent" in output
    assert not [seen for seen in hub.log if seen.writes]
    status, output = run(hub, home, "upload", "saes", "--repo-id", REPO)
    assert (status, "`yes` should be given" in output) == (1, True)
    assert not hub.repos
    said = ("--private", "--license", "mit", "--commit-message", "Add mine")
    command = ("upload", "saes", "--repo-id", REPO, "--yes", "--token", TOKEN, *said)
    status, output = run(hub, home, *command, HF_TOKEN="")
    assert status == 0, output
    assert hub.repos[REPO].private
    assert hub.repos[REPO].history()[0].title == "Add mine"
    assert re.search(r"^README\.md: \d+ lines added, 0 removed\.$", output, re.MULTILINE)
    assert "+# saes" not in output
    assert f"Published: {hub.endpoint}/{REPO}/commit/" in output
    assert "license: mit" in text(hub, README)
    status, output = run(hub, home, "upload", "saes", "--repo-id", "no", "--yes")
    assert (status, "`repo-id` should be like org/name" in output) == (1, True)
    assert not [
        path for path in home.rglob("*") if path.is_file() and TOKEN in path.read_text()
    ]


def test_xet_that_cannot_be_used_is_told(hub: LoopbackHub, tmp_path: Path) -> None:
    plant_sae(tmp_path / "saes" / "a", d_in=8)
    arguments = ("upload", "saes", "--repo-id", REPO, "--yes")
    status, output = run(hub, tmp_path / "home", *arguments, HF_HUB_DISABLE_XET="0")
    assert status == 1
    assert "HF_HUB_DISABLE_XET=1" in output.splitlines()[-1]
    assert "nothing is half there" in output.splitlines()[-1]
    assert list(hub.repos[REPO].history()[0].files) == [".gitattributes"]
