"""An upload from end to end, against the loopback Hub: as a whole, or not at all."""

import copy
import importlib
import json
import re
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import unquote

import httpx2
import pytest
import torch
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, RevisionNotFoundError
from sae_lens import SAE

import sae_lens_c2r.hub
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.process import Interrupted
from sae_lens_c2r.hub import Submission, Target, load, show_proposal, upload, write_card
from sae_lens_c2r.hub.card import split_card
from sae_lens_c2r.hub.local_saes import check_saes
from sae_lens_c2r.hub.proposal import Proposal
from sae_lens_c2r.hub.rendering import BEGIN, END
from sae_lens_c2r.hub.repository import explain_hub_error
from sae_lens_c2r.releases.model import FACTS, README
from tests import forkserver
from tests.evaluation.planted import plant_sae
from tests.hub.conftest import CFG, REPO, WEIGHTS, Checked, refusal, run_client, say
from tests.hub.conftest import send as send_checked
from tests.hub.fault_table import FAULTS, KINDS, rows
from tests.hub.server import STORAGE_HOST, TOKEN, Account, Fault, File, LoopbackHub, Seen

exhaustive = pytest.mark.exhaustive
Call = Callable[..., Any]
COMMIT = HfApi.create_commit
PUBLIC = {"Submission", "Target", "load", "show_proposal", "upload", "write_card"}


def text(hub: LoopbackHub, path: str) -> str:
    return hub.repos[REPO].history()[0].files[path].content.decode()


def metadata(hub: LoopbackHub) -> dict[str, Any]:
    return split_card(text(hub, README))[1]


def writes(hub: LoopbackHub) -> list[Seen]:
    return [seen for seen in hub.log if seen.writes]


@pytest.fixture
def send(api: HfApi, checked: Checked) -> Call:
    """Uploads SAEs by their ids, or those that were checked."""

    def send(*saes: Any, api: HfApi = api, **options: Any) -> Any:
        known = checked(*saes) if isinstance(saes[0], str) else saes
        return send_checked(known, api, **options)

    return send


def test_public_names_are_these() -> None:
    assert set(sae_lens_c2r.hub.__all__) == PUBLIC
    for name in PUBLIC:  # also once their modules are imported, whose names are others
        assert getattr(sae_lens_c2r.hub, name).__doc__
        assert callable(getattr(sae_lens_c2r.hub, name))
    with pytest.raises(AttributeError, match="no attribute 'uplaod'"):
        _ = sae_lens_c2r.hub.uplaod


def test_beside_an_older_client_of_the_hub_only_publishing_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "0.36.2")
    with pytest.raises(UserError, match=r"1\.31 or newer.*Found 0\.36\.2"):
        importlib.reload(sae_lens_c2r.hub)


def test_saes_in_memory_are_sent_with_what_is_said_of_them(
    hub: LoopbackHub, api: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights are hashed once, by the process that has SAELens alone, and not by this one."""
    hashing = Mock()
    monkeypatch.setattr("huggingface_hub.lfs.sha_fileobj", hashing)
    sae = SAE.load_from_disk(plant_sae(tmp_path / "a", d_in=8))
    published = upload(Submission({"x/y": sae}, license="mit"), REPO, api=api)
    hashing.assert_not_called()
    assert "x/y/cfg.json" in hub.repos[REPO].commits[published.commit].files
    assert metadata(hub)["license"] == "mit"
    torch.testing.assert_close(sae.W_dec, SAE.load_from_disk(tmp_path / "a").W_dec)


def test_a_card_is_written_of_what_would_be_sent(
    api: HfApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card of a folder is that of an upload, which says what it would do."""
    plant_sae(tmp_path / "saes" / "a", d_in=8)
    said = Submission([tmp_path / "saes"], license="mit")
    path = write_card(said, tmp_path / "card", repo_id=REPO)
    refuse = Mock(wraps=show_proposal)  # which returns None
    assert upload(said, Target(REPO), confirm=refuse, api=api) is None
    [proposal] = refuse.call_args.args
    sent, written = proposal.card, path.read_text()
    sent = re.sub("base_model: .*\n", "", sent)  # which the Hub was asked for
    sent = re.sub(" The activations come from .*", "", sent)
    assert written.split("## Training")[0] == sent.split("## Training")[0]
    printed = capsys.readouterr().out
    assert f"{REPO} at main: private, to be made.\nThere is no such repository, or" in printed
    assert f"a/{WEIGHTS}" in printed


def test_a_card_is_of_one_repository(tmp_path: Path) -> None:
    """Of the one that is named, or that training recorded; a folder holds the card of one."""
    for name in ("a", "b"):
        folder = plant_sae(tmp_path / "saes" / name, d_in=8)
        say(folder, {"release": {"repo_id": "org/recorded"}})
    out = tmp_path / "card"
    assert "org/recorded" in write_card([tmp_path / "saes"], out).read_text()
    say(folder, {"release": {"repo_id": "org/other"}})
    with pytest.raises(UserError, match="`repo_id` should be given"):
        write_card([tmp_path / "saes"], out)
    held = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"`out` should be a new folder.*org/recorded in "):
        write_card([folder], out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == held
    other = plant_sae(tmp_path / "c", d_in=8, seed=1)
    card = write_card([other], out, repo_id="org/recorded").read_text()
    assert all(f"| `{sae_id}` |" in card for sae_id in "abc")


def test_the_model_of_an_sae_that_was_trained_from_a_folder_can_be_named(
    tmp_path: Path,
) -> None:
    folder = say(plant_sae(tmp_path / "a", d_in=8), model_name=str(tmp_path / "model"))
    card = write_card(Submission([folder]), tmp_path / "card", repo_id=REPO).read_text()
    assert "base_model" not in card
    said = Submission([folder], base_model="org/model")
    card = write_card(said, tmp_path / "other", repo_id=REPO).read_text()
    assert "base_model: org/model" in card
    assert 'model_name = "org/model"' in card


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("license", ["no such", "MIT"]),
        ("base_model", ["gpt2", "/models/gpt2", "a/b/c"]),
        ("saes", [{}, [], "saes", Path("saes"), [Path("saes"), "b"]]),
        ("repo_id", ["saes", "me/../saes", "me/saes.git", "a/b/c", "me/säe"]),
        ("revision", ["a b", "../main", "refs/heads/x", "refs/pr/x", "0" * 40]),
        ("tag", ["HEAD", "x.lock/y", "", "refs/pr/1"]),
    ],
)
def test_what_is_said_is_looked_at_first(key: str, values: list[Any]) -> None:
    is_where = key in ("repo_id", "revision", "tag")
    for value in values:
        with pytest.raises(UserError, match=f"^`{key}` should"):
            Target(**{"repo_id": REPO, key: value}) if is_where else Submission(
                **{"saes": [Path("saes")], key: value}
            )
    for proposal in ({"create_pr": True}, {"revision": "refs/pr/1"}):
        with pytest.raises(UserError, match=r"^`tag` should"):  # nothing is merged yet
            Target(REPO, tag="v1", **proposal)
    with pytest.raises(UserError, match=r"^`create_pr` should"):
        Target(REPO, revision="refs/pr/1", create_pr=True)


# What is sent


def test_saes_and_their_card_are_one_commit(hub: LoopbackHub, send: Call) -> None:
    published = send("a", "b/c", check_published=True)
    repo = hub.repos[REPO]
    assert [commit.title for commit in repo.history()] == ["Add 2 SAEs", "initial commit"]
    saes = {f"{sae_id}/{name}" for sae_id in ("a", "b/c") for name in (CFG, WEIGHTS)}
    card = {README, FACTS, "figures/max_cosines.png"}
    assert set(repo.history()[0].files) == {".gitattributes"} | saes | card
    assert repo.private
    assert published.commit == repo.history()[0].oid
    assert metadata(hub)["base_model"] == "EleutherAI/pythia-70m-deduped"
    assert not [seen for seen in hub.log if seen.host == STORAGE_HOST and seen.authorization]


def test_a_dry_run_writes_nothing(hub: LoopbackHub, api: HfApi, send: Call) -> None:
    shown: list[Proposal] = []
    look = {"confirm": lambda proposal: bool(shown.append(proposal))}
    assert send("a", "b/c", **look) is None
    assert hub.log
    assert not writes(hub)
    assert shown[0].snapshot.private is None
    assert "+# saes" in shown[0].card_diff
    send("a", "b/c")
    hub.log.clear()
    # A token that may only read is enough, whatever is confirmed.
    hub.accounts["hf_reads"] = Account("me", role="read")
    reader = HfApi(api.endpoint, token="hf_reads")
    look = {"confirm": lambda proposal: not shown.append(proposal), "dry_run": True}
    assert send("d", api=reader, **look) is None
    assert not writes(hub)
    there = {file.path_in_repo for file in shown[1].files} & shown[1].snapshot.tree.keys()
    assert there == {README, FACTS, "figures/max_cosines.png"}
    assert "+| `d` |" in shown[1].card_diff
    assert "-# saes" not in shown[1].card_diff


@pytest.mark.parametrize("there", [False, True])
def test_before_the_yes_the_hub_is_asked_for_names_alone(
    there: bool, hub: LoopbackHub, send: Call
) -> None:
    """The repository's, the model's and the text's; after it the card's metadata come first."""
    if there:
        send("a")
    hub.log.clear()
    said = {"license": "mit", "message": "What I did", "tag": "mine", "revision": "branch"}
    for dry_run in (True, False):
        at_the_yes: list[Seen] = []
        confirm = {"confirm": lambda _, seen=at_the_yes: not seen.extend(hub.log)}
        send("b/c", **said, dry_run=dry_run, **confirm)
        assert {seen.method for seen in at_the_yes} <= {"GET", "HEAD"}
        assert not any(seen.size for seen in at_the_yes)
        names = {*REPO.split("/"), "EleutherAI", "pythia-70m-deduped", "nobody", "nothing"}
        names |= {"branch", "main", README, FACTS, "pythia-70m", "api", "models", "datasets"}
        names |= {"refs", "whoami-v2", "auth-check", "write", "revision", "tree", "resolve", ""}
        names |= {commit for repo in hub.repos.values() for commit in repo.commits}
        for seen in at_the_yes:
            assert set(unquote(seen.path).split("/")) <= names, seen
            assert seen.query.keys() <= {"recursive", "expand", "limit", "cursor"}, seen
        if dry_run:
            assert hub.log == at_the_yes
    after = hub.log[len(at_the_yes) :]
    assert after[0].path == "/api/validate-yaml"
    assert after[0].size < 2000  # the metadata, of a card that is longer


def test_uploads_in_turn_come_to_rest(hub: LoopbackHub, send: Call) -> None:
    for sae_ids in (("a",), ("b", "c"), ("a",), ("b", "c")):
        hub.log.clear()
        published = send(*sae_ids)
    assert published.sent == 0
    assert not writes(hub)
    assert len(hub.repos[REPO].history()) == 3
    assert text(hub, README).count("## Measurements") == 1
    other = text(hub, f"a/{CFG}").replace('"d_in": 8', '"d_in": 9')  # as long as it was
    hub.put(REPO, {f"a/{CFG}": other.encode()})
    assert send("a").sent == 1
    assert text(hub, f"a/{CFG}") != other


def test_what_belongs_to_weights_goes_with_them(
    hub: LoopbackHub, send: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of uploads by other means, of which SAELens's loader would read the sparsity."""
    send("a", "b")
    beside = ("sparsity.safetensors", "runner_cfg.json", "notes.md")
    hub.put(REPO, {f"{sae_id}/{name}": b"of these" for sae_id in "ab" for name in beside})
    assert send("a", "b").sent == 0
    assert text(hub, "a/notes.md")
    hub.put(REPO, {f"a/{WEIGHTS}": b"older"})
    shown: list[Proposal] = []
    send("a", "b", confirm=lambda each: not shown.append(each))
    there = hub.repos[REPO].history()[0].files
    kept = {path for path in there if path.startswith("a/")}
    assert kept == {f"a/{name}" for name in (CFG, "notes.md", WEIGHTS)}
    assert f"b/{beside[0]}" in there
    capsys.readouterr()
    show_proposal(shown[0])
    [line] = [line for line in capsys.readouterr().out.splitlines() if beside[0] in line]
    assert "removed" in line


def test_a_new_branch_is_proposed_with_what_it_begins_with(
    hub: LoopbackHub, send: Call
) -> None:
    send("a")
    proposed: list[Proposal] = []
    published = send("b", revision="next", confirm=lambda each: not proposed.append(each))
    sent = hub.repos[REPO].commits[published.commit].files[README].content
    assert sent.decode() == proposed[0].card
    assert all(f"| `{sae_id}` |" in proposed[0].card for sae_id in "ab")
    send("a", revision="same", confirm=lambda each: proposed.append(each))
    assert not proposed[1].files, "as they are on main"
    assert not proposed[1].is_there
    assert "same" not in hub.repos[REPO].branches


def test_an_sae_that_goes_beside_the_one_that_it_was_trained_as_is_told(
    hub: LoopbackHub, checked: Checked, send: Call
) -> None:
    sae = copy.copy(*checked("a"))
    hub.put(REPO, {f"layer_9/a/{CFG}": b"{}"})
    told: list[str] = []
    for trained_as in (None, "a", "b", "layer_9/a"):
        sae.found = sae.found.model_copy(update={"sae_id": trained_as})
        send(sae, dry_run=True, tell=told.append)
    assert len([line for line in told if "a was trained as layer_9/a" in line]) == 1


def test_a_readme_of_somebodys_is_added_to(hub: LoopbackHub, send: Call) -> None:
    send("a")
    before, rest = text(hub, README).split(BEGIN)
    ours, _ = rest.split(END)
    foreign = f"{before}# Mine\n\nBefore.\n\n{BEGIN}{ours}{END}\n\nAfter.\n"
    hub.put(
        REPO, {README: foreign.replace("---\n", "---\nmine: {x: [1, 'two']}\n", 1).encode()}
    )
    send("b", "c")
    card = text(hub, README)
    assert all(f"| `{sae_id}` |" in card for sae_id in "abc")
    before, rest = card.split(BEGIN)
    assert metadata(hub)["mine"] == {"x": [1, "two"]}
    assert before.endswith("# Mine\n\nBefore.\n\n")
    assert rest.split(END)[1] == "\n\nAfter.\n"
    assert set(json.loads(text(hub, FACTS))["saes"]) == {"a", "b", "c"}
    assert len(metadata(hub)["model-index"]) == 1  # of the SAE that the card loads


@pytest.mark.parametrize("create_pr", [False, True])
def test_two_uploads_at_once_share_one_card(
    hub: LoopbackHub, send: Call, create_pr: bool
) -> None:
    """What is sent, or proposed, follows from what the branch has at its commit."""
    send("a")

    def another(seen: Seen) -> None:
        if "/commit/" in seen.path:
            hub.fault = lambda _: None
            send("b", "c")

    hub.fault = another
    published = send("d", create_pr=create_pr)
    repo = hub.repos[REPO]
    files = repo.commits[published.commit].files
    assert set(json.loads(files[FACTS].content or b"")["saes"]) == {"a", "b", "c", "d"}
    assert all(b"| `%c` |" % sae_id in (files[README].content or b"") for sae_id in b"abcd")
    titles, ours = [commit.title for commit in repo.history()], [] if create_pr else ["Add d"]
    assert titles == [*ours, "Add 2 SAEs", "Add a", "initial commit"]
    assert len(repo.pull_requests) == create_pr


def test_branches_tags_and_proposals(hub: LoopbackHub, send: Call) -> None:
    target = {"revision": "next", "tag": "v1", "public": True}
    published = send("a", **target, check_published=True)
    repo = hub.repos[REPO]
    assert not repo.private
    assert repo.tags == {"v1": published.commit}
    assert repo.branches["next"] == published.commit != repo.branches["main"]
    assert send("a", **target).sent == 0  # the tag is where it should be
    taken = refusal(send, "b", "c", tag="v1")
    assert "`tag` should be new. Found v1" in taken
    no_branch = refusal(send, "b", "c", revision="v1")
    assert "`revision` should be a branch. Found the tag v1" in no_branch
    assert set(repo.branches) == {"main", "next"}
    proposed = send("a", create_pr=True, check_published=True)
    assert proposed.url == f"{hub.endpoint}/{REPO}/discussions/1"
    assert list(repo.history()[0].files) == [".gitattributes"]


def test_an_sae_is_loaded_at_a_revision(
    hub_here: LoopbackHub, api: HfApi, tmp_path: Path
) -> None:
    """What is published later changes nothing of what a tag or a commit has."""
    send_from = {"api": api, "check_published": False}
    before = SAE.load_from_disk(plant_sae(tmp_path / "a", d_in=8))
    upload({"a": before}, Target(REPO, tag="v1", public=True), **send_from)
    after = SAE.load_from_disk(plant_sae(tmp_path / "b", d_in=8, seed=1))
    published = upload({"a": after}, Target(REPO), **send_from)
    assert torch.equal(load(REPO, "a", revision=published.commit).W_dec, after.W_dec)
    then = load(REPO, "a", revision="v1", dtype="float64")
    assert torch.equal(then.W_dec, before.W_dec.double())
    with pytest.raises(RevisionNotFoundError):
        load(REPO, "a", revision="v2")
    for sae_id in ("b", "../a", "*", "/a"):
        with pytest.raises(UserError, match=re.escape(sae_id)):
            load(REPO, sae_id, revision="v1")
    assert hub_here.repos[REPO].tags.keys() == {"v1"}
    of_others = {
        f"k=32 [x]/{name}": (tmp_path / "b" / name).read_bytes() for name in (CFG, WEIGHTS)
    }
    hub_here.put(REPO, of_others)
    assert torch.equal(load(REPO, "k=32 [x]", revision="main").W_dec, after.W_dec)


def test_the_card_names_what_the_hub_has(hub: LoopbackHub, send: Call) -> None:
    said: list[str] = []
    send("a")
    assert "datasets" not in metadata(hub)
    hub.known_datasets.add("nobody/nothing")  # that all were trained on
    send("b", "c", base_model="google/gemma-2-2b", tell=said.append)
    assert any("google/gemma-2-2b is gated" in line for line in said)
    models = ["EleutherAI/pythia-70m-deduped", "google/gemma-2-2b"]
    assert metadata(hub)["base_model"] == models
    assert metadata(hub)["datasets"] == ["nobody/nothing"]
    assert text(hub, README).count("whose own terms apply") == 0  # no licence
    hub.known_models.clear()
    hub.known_datasets.clear()
    send("d", repo_id="me/others")
    [files] = [hub.repos["me/others"].history()[0].files]
    assert not {"base_model", "datasets"} & split_card(files[README].content.decode())[1].keys()


def test_the_licence_is_the_repositorys_and_one_of_the_hubs(
    hub: LoopbackHub, send: Call
) -> None:
    assert '"license" must be one of' in refusal(send, "a", license="mitt")
    assert not writes(hub)
    send("a", license="mit")
    assert "license: mit" in text(hub, README)
    assert send("a").sent == 0
    message = refusal(send, "b", "c", license="apache-2.0")
    assert "`license` should be mit, as in README.md of the repository" in message
    assert "with `--license mit`" in message


# Who may


@pytest.mark.parametrize(
    ("account", "exists", "reason"),
    [
        (None, False, "There is no token, or the Hub does not accept it"),
        (Account("me", role="read"), True, "should have the role `write`"),
        (Account("me", role="fineGrained", writable=("me/x",)), True, "may not write to me/s"),
    ],
)
def test_what_a_token_may_is_told_before_anything_is_read(
    hub: LoopbackHub, api: HfApi, account: Account | None, exists: bool, reason: str
) -> None:
    if exists:
        api.create_repo(REPO, private=True)
        hub.log.clear()
    if account is not None:
        hub.accounts["hf_another"] = account
    other = HfApi(hub.endpoint, token="hf_another")
    message = refusal(upload, [Path("nowhere")], Target(REPO), api=other)
    assert reason in message
    assert "hf_another" not in message
    assert len(hub.log) <= 2
    assert not writes(hub)


@pytest.mark.parametrize(
    "account",
    [
        Account("me", role="read"),
        Account("me", role="fineGrained", writable=("me/others",)),
        Account("you", ("your-lab",)),
    ],
)
def test_a_token_that_may_make_no_repository_is_told(
    hub: LoopbackHub, send: Call, account: Account
) -> None:
    """By the Hub's answer, when it is asked to make one."""
    hub.accounts["hf_fine"] = account
    message = refusal(send, "a", api=HfApi(hub.endpoint, token="hf_fine"))
    assert f"The token may not write to {REPO}. The Hub says: " in message
    assert ": the token should have the role `write` or" in message
    assert [seen.path for seen in writes(hub)] == ["/api/repos/create"]
    assert not hub.repos


def test_a_fine_grained_token_is_enough_and_anybody_may_propose(
    hub: LoopbackHub, send: Call
) -> None:
    send("a", public=True)
    hub.accounts["hf_fine"] = Account("me", role="fineGrained", writable=(REPO,))
    assert send("b", "c", api=HfApi(hub.endpoint, token="hf_fine")).sent > 0
    hub.accounts["hf_you"] = Account("you")
    you = HfApi(hub.endpoint, token="hf_you")
    assert send("d", api=you, create_pr=True).url.endswith("/discussions/1")


# What goes wrong


@pytest.mark.parametrize("names", [KINDS, pytest.param(tuple(FAULTS), marks=exhaustive)])
@pytest.mark.usefixtures("api")
def test_a_fault_at_any_request_leaves_nothing_half(
    checked: Checked, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between the client's repetitions
    found = list(rows(checked("a", "b"), names))
    assert len({row.request for row in found}) > 15
    for row in found:
        assert row.after in ("as it was", "complete"), row
        assert (row.outcome == "succeeded") <= (row.after == "complete"), row
        assert row.again == "complete, tagged", row
        assert row.commits == 1, row
    assert {row.outcome for row in found} == {"succeeded", "failed"}


def test_weights_that_change_before_they_are_sent_are_not(
    hub: LoopbackHub, send: Call, tmp_path: Path
) -> None:
    folder = plant_sae(tmp_path / "a", d_in=8)
    weights = folder / WEIGHTS
    content = weights.read_bytes()

    def saes() -> Any:
        weights.write_bytes(content)
        scratch = tmp_path / f"scratch-{len(list(tmp_path.iterdir()))}"
        return check_saes(Submission([folder]), scratch)

    def spoil(*_: Any) -> bool:
        weights.write_bytes(content[:-4] + b"nan!")
        return True

    said = "should not change during an upload"
    assert said in refusal(send, *saes(), confirm=spoil)
    gone = saes()
    weights.unlink()
    assert said in refusal(send, *gone)
    assert not hub.repos.get(REPO) or len(hub.repos[REPO].history()) == 1
    later = saes()
    hub.fault = lambda seen: None if "/preupload/" not in seen.path else (spoil() and None)
    message = refusal(send, *later)
    assert said in message
    assert "never half-written" in message
    assert list(hub.repos[REPO].history()[0].files) == [".gitattributes"]


@pytest.mark.parametrize("path", [f"b/{WEIGHTS}", f"a/{CFG}", README, FACTS])
def test_a_file_that_is_not_there_as_it_was_sent_is_told(
    hub: LoopbackHub, send: Call, path: str
) -> None:
    """Of any SAE, and of the card: the Hub says of every file what it is."""

    def spoil(seen: Seen) -> None:
        if "/tree/" in seen.path and len(hub.repos[REPO].history()) == 2:
            files = hub.repos[REPO].history()[0].files
            size, content, sha256 = vars(files[path]).values()
            files[path] = File(size, content and content[::-1], sha256 and sha256[::-1])

    hub.fault = spoil
    message = refusal(send, "a", "b", tag="v1", check_published=True)
    assert "has everything" in message
    assert message.startswith(f"{REPO} at ")
    assert f"{path} should have the SHA-256" in message
    assert not hub.repos[REPO].tags


def test_an_sae_that_comes_back_wrong_is_told(
    hub: LoopbackHub, checked: Checked, send: Call
) -> None:
    other = checked("b", "c")[1]

    def spoil(seen: Seen) -> None:
        if "/resolve/" in seen.path and len(hub.repos[REPO].commits) == 3:
            hub.fault = lambda _: None
            size = (other.folder / WEIGHTS).stat().st_size
            file = File(size, sha256=other.sha256[WEIGHTS])
            hub.put(REPO, {f"a/{WEIGHTS}": file})

    send("b", "c")
    hub.fault = spoil
    message = refusal(send, "a", tag="v1", check_published=True)
    assert "has everything" in message
    assert "should encode a batch as it did here" in message
    assert not hub.repos[REPO].tags


def test_why_nothing_was_sent_is_told(send: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal(send, "a", api=HfApi("http://127.0.0.1:9", token=TOKEN))
    assert message.startswith("Nothing was sent. The Hub does not answer: is there a network?")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "unset the `HF_HUB_OFFLINE`" in refusal(send, "a")
    assert explain_hub_error(ValueError("x\n y"), REPO) == "ValueError: x y"
    response = httpx2.Response(403, request=httpx2.Request("POST", "http://127.0.0.1:9"))
    full = HfHubHTTPError("", response=response, server_message="Storage limit reached.")
    assert "The Hub says: Storage limit reached. If" in explain_hub_error(full, REPO)


def test_a_gitignore_there_keeps_no_file_out_of_the_commit(
    hub: LoopbackHub, send: Call
) -> None:
    hub.put(REPO, {".gitignore": b"*.safetensors\n*.png\n*.json\n"})
    sent = send("a").sent
    assert len(hub.repos[REPO].history()[0].files) == sent + 1  # and itself
    assert send("a").sent == 0


def test_what_others_wrote_on_a_card_is_theirs(hub: LoopbackHub, send: Call) -> None:
    theirs = "export HF_TOKEN=your_token_here"
    hub.put(REPO, {README: f"# Mine\n{theirs}\n".encode()})
    send("a")
    assert theirs in text(hub, README)


def interrupt_later(*arguments: Any, **options: Any) -> None:
    COMMIT(*arguments, **options)
    raise KeyboardInterrupt


def test_an_interrupted_upload_tells_what_is_there(
    hub: LoopbackHub, send: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = Mock(side_effect=KeyboardInterrupt)
    terminated = Mock(side_effect=Interrupted(signal.SIGTERM))
    monkeypatch.setattr(HfApi, "create_commit", terminated)
    with pytest.raises(Interrupted, match=f"Nothing of this upload is on {REPO} yet") as ended:
        send("a")
    assert ended.value.status == 128 + signal.SIGTERM
    monkeypatch.setattr(HfApi, "create_commit", interrupt_later)
    with pytest.raises(KeyboardInterrupt, match=f"{REPO} has everything"):
        send("a")
    assert send("a").sent == 0
    hub.fault = lambda seen: Fault(500, after=True) if "/commit/" in seen.path else None
    monkeypatch.setattr(HfApi, "create_commit", COMMIT)
    monkeypatch.setattr("sae_lens_c2r.hub.uploading.time.sleep", interrupt)
    with pytest.raises(KeyboardInterrupt, match=f"{REPO} has everything"):
        send("d")  # whose answer is lost, and which waits to look again
    hub.fault = lambda _: None
    monkeypatch.setattr(HfApi, "create_tag", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"has everything.*tag v1 may not have"):
        send("a", tag="v1")


def test_a_pull_request_is_gone_on_with(
    hub: LoopbackHub, send: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted, an upload cannot tell whether one was opened, and the next opens another."""
    send("a")
    with monkeypatch.context() as patched:
        patched.setattr(HfApi, "create_commit", interrupt_later)
        with pytest.raises(
            KeyboardInterrupt, match=r"may have been opened.*refs/pr/N"
        ) as ended:
            send("d", create_pr=True)
    assert "to continue" not in str(ended.value)
    repo = hub.repos[REPO]
    [repo.branches["refs/pr/1"]] = repo.pull_requests
    hub.fault = lambda seen: Fault(500, after=True) if "/commit/" in seen.path else None
    assert "A pull request may have been opened" in refusal(send, "b", "c", create_pr=True)
    hub.fault = lambda _: None
    hub.log.clear()
    assert send("d", revision="refs/pr/1", check_published=True).sent == 0
    assert not writes(hub)
    assert "no refs/pr/2" in refusal(send, "d", revision="refs/pr/2")
    assert set(repo.branches) == {"main", "refs/pr/1"}
    assert send("b", "c", revision="refs/pr/1", check_published=True).sent > 0


def test_a_tag_that_fails_or_that_somebody_sets_meanwhile_is_told(
    hub: LoopbackHub, send: Call
) -> None:
    """Unless it is set where it should be."""

    def tag(seen: Seen) -> None:
        if "/tag/" in seen.path:
            commits = hub.repos[REPO].history()
            hub.repos[REPO].tags |= {"mine": commits[0].oid, "v1": commits[-1].oid}

    def fail(seen: Seen) -> Fault | None:
        return Fault(500) if "/tag/" in seen.path else None

    hub.fault = tag
    assert send("a", tag="mine").sent
    for fault, status in {tag: 409, fail: 500}.items():
        del hub.repos[REPO].tags["v1"]
        hub.fault = fault
        message = refusal(send, "a", tag="v1")
        assert "has everything" in message
        assert f"tag v1 may not have been set. The Hub answered {status}" in message
    hub.fault = lambda _: None
    send("a", tag="v1")
    assert set(hub.repos[REPO].tags) == {"mine", "v1"}


def test_a_repository_that_cannot_be_joined_with_is_left(hub: LoopbackHub, send: Call) -> None:
    send("b/c")
    assert "An SAE should not lie in another SAE's folder" in refusal(send, "b")
    for content, key in (
        (b"---\nlicense: [\n---\n", README),
        (b"\xff", README),
        (b"---\nbase_model: gpt2-small\n---\n", "base_model"),
    ):
        hub.put(REPO, {README: content})
        assert key in refusal(send, "a")
    hub.put(REPO, {README: b""})
    for content in (b"{", b"[]", b'{"format": 99}', b'{"format": 1, "saes": {"a": {}}}'):
        hub.put(REPO, {FACTS: content})
        assert FACTS in refusal(send, "a")
    assert len(hub.repos[REPO].history()) == 10


# Several uploads, and those that are killed

UPLOAD = """
import resource, sys
from pathlib import Path
from huggingface_hub import CommitOperationAdd, HfApi
from sae_lens_c2r.hub.repository import take_snapshot
from sae_lens_c2r.hub.rules import Target
from sae_lens_c2r.hub.proposal import Proposal
from sae_lens_c2r.hub.uploading import publish
name, *large = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
api, target = HfApi(), Target("me/saes")
contents = [Path(path) for path in large] or [name.encode() * 99 + b"%d" % i for i in range(3)]
def propose():
    files = [(f"{name}/{i}.safetensors", content) for i, content in enumerate(contents)]
    files = [CommitOperationAdd(*file) for file in [*files, (f"{name}/cfg.json", b"{}")]]
    return Proposal(target, take_snapshot(api, "me/saes", "main"), [], files, card="")
publish(api, propose(), propose, message=name)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def finish(hub: LoopbackHub, *arguments: str | Path) -> str:
    status, output = run_client(hub, "-c", UPLOAD, *arguments, home=hub.storage.parent / "home")
    assert status == 0, output
    return output


def names(hub: LoopbackHub) -> set[str]:
    """The uploads that are complete, where none is half there."""
    files = hub.repos[REPO].history()[0].files
    found = {path.partition("/")[0] for path in files if "/" in path}
    for name in found:
        assert sum(path.startswith(f"{name}/") for path in files) == 4, name
    return found


@pytest.mark.parametrize("number", range(14))  # the last one's request is the commit
def test_a_killed_upload_is_continued(hub: LoopbackHub, number: int) -> None:
    process = forkserver.start("-c", UPLOAD, "a", env=hub.environment())

    def kill(seen: Seen) -> None:
        if seen.number == number:
            process.kill()
            process.wait()

    hub.fault = kill
    assert process.wait() == -signal.SIGKILL
    assert (number == 13) == ("/commit/" in hub.log[-1].path)
    assert REPO not in hub.repos or names(hub) in (set(), {"a"})
    hub.fault = lambda _: None
    finish(hub, "a")
    assert names(hub) == {"a"}
    titles = [commit.title for commit in hub.repos[REPO].history()]
    assert titles == ["a", "initial commit"]


def test_half_a_gigabyte_takes_less_than_a_quarter(hub: LoopbackHub, tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.truncate(1 << 29)  # sparse: nothing is written here
    grown = int(finish(hub, "a", path).split()[0])
    unit = 1 if sys.platform == "darwin" else 1024
    assert grown * unit < 1 << 28
    [stored] = hub.storage.iterdir()
    assert stored.stat().st_size == 1 << 29
    assert hub.repos[REPO].history()[0].files["a/0.safetensors"].size == 1 << 29
    stored.unlink()


# The command


@pytest.fixture
def run(hub: LoopbackHub, tmp_path: Path) -> Call:
    """Runs the command with one SAE; its status and words."""
    plant_sae(tmp_path / "saes" / "a", d_in=8)
    command = ("-m", "sae_lens_c2r", "upload", "saes")
    return partial(run_client, hub, *command, home=tmp_path / "home")


def test_the_command_from_folders_to_from_pretrained(
    hub: LoopbackHub, tmp_path: Path, run: Call
) -> None:
    status, output = run("--repo-id", REPO, "--dry-run")
    assert status == 0, output
    assert "Nothing was sent" in output
    assert not writes(hub)
    status, output = run("--repo-id", REPO)
    assert (status, "`--yes` should be given" in output) == (2, True)
    assert not hub.repos
    said = ("--private", "--license", "mit", "--commit-message", "Add mine")
    status, output = run("--repo-id", REPO, "--yes", "--token", TOKEN, *said, HF_TOKEN="")
    assert status == 0, output
    assert hub.repos[REPO].private
    assert hub.repos[REPO].history()[0].title == "Add mine"
    assert re.search(r"^README\.md: \d+ lines added, 0 removed\.$", output, re.MULTILINE)
    assert "+# saes" not in output
    assert f"Published: {hub.endpoint}/{REPO}/commit/" in output
    assert "license: mit" in text(hub, README)
    status, output = run("--repo-id", "no", "--yes")
    assert (status, "`--repo-id` should be like org/name" in output) == (2, True)
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert not any(TOKEN in path.read_text() for path in files)


def test_xet_that_cannot_be_used_is_told(hub: LoopbackHub, run: Call) -> None:
    status, output = run("--repo-id", REPO, "--yes", HF_HUB_DISABLE_XET="0")
    assert status == 1
    assert "HF_HUB_DISABLE_XET=1" in output.splitlines()[-1]
    assert "never half-written" in output.splitlines()[-1]
    assert list(hub.repos[REPO].history()[0].files) == [".gitattributes"]
