"""An upload from end to end, against the loopback Hub: as a whole, or not at all."""

import json
import re
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import unquote

import httpx2
import pytest
import torch
from huggingface_hub import HfApi, ModelCard
from sae_lens import SAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub import Submission, Target, show_proposal, upload, write_card
from sae_lens_c2r.hub.card import BEGIN, END
from sae_lens_c2r.hub.local_saes import LocalSAE
from sae_lens_c2r.hub.proposal import Proposal
from sae_lens_c2r.releases.model import FACTS, README
from tests import forkserver
from tests.evaluation.planted import plant_sae
from tests.hub.conftest import CFG, REPO, WEIGHTS, Checked, refusal, run_client, say
from tests.hub.conftest import send as send_checked
from tests.hub.server import STORAGE_HOST, TOKEN, Account, Fault, LoopbackHub, Seen, serving

Call = Callable[..., Any]


def text(hub: LoopbackHub, path: str) -> str:
    return hub.repos[REPO].history()[0].files[path].content.decode()


def metadata(hub: LoopbackHub) -> dict[str, Any]:
    return ModelCard(text(hub, README)).data.to_dict()


def writes(hub: LoopbackHub) -> list[Seen]:
    return [seen for seen in hub.log if seen.writes]


@pytest.fixture
def send(api: HfApi, checked: Checked) -> Call:
    """Uploads SAEs by their ids, or those that were checked."""

    def send(*saes: Any, api: HfApi = api, **options: Any) -> Any:
        known = checked(*saes) if isinstance(saes[0], str) else saes
        return send_checked(known, api, **options)

    return send


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
        say(folder, {"repo_id": "org/recorded"})
    out = tmp_path / "card"
    assert "org/recorded" in write_card([tmp_path / "saes"], out).read_text()
    say(folder, {"repo_id": "org/other"})
    with pytest.raises(UserError, match="`repo_id` should be given"):
        write_card([tmp_path / "saes"], out)
    held = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"`out` should be a new folder.*org/recorded in "):
        write_card([folder], out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == held
    other = plant_sae(tmp_path / "c", d_in=8, seed=1)
    card = write_card([other], out, repo_id="org/recorded").read_text()
    assert all(f"| `{sae_id}` |" in card for sae_id in "abc")


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("license", ["no such", "MIT"]),
        ("base_model", ["gpt2", "/models/gpt2", "a/b/c"]),
        ("saes", [[]]),
        ("repo_id", ["", "saes", "me/../saes", "me/saes.git", "a/b/c", "me/säe"]),
    ],
)
def test_what_is_said_is_looked_at_first(key: str, values: list[Any]) -> None:
    kind: Any = Target if key == "repo_id" else partial(Submission, saes=[Path("saes")])
    for value in values:
        with pytest.raises(UserError, match=f"^`{key}` should"):
            kind(**{key: value})
        if key == "repo_id":
            with pytest.raises(UserError, match=f"^`{key}` should"):
                write_card([Path("nowhere")], Path("card"), repo_id=value)


# What is sent


def test_saes_and_their_card_are_one_commit(hub: LoopbackHub, send: Call) -> None:
    published = send("a", "b/c")
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
    said = {"license": "mit", "revision": "branch"}
    for dry_run in (True, False):
        at_the_yes: list[Seen] = []
        confirm = {"confirm": lambda _, seen=at_the_yes: not seen.extend(hub.log)}
        send("b/c", **said, dry_run=dry_run, **confirm)
        assert {seen.method for seen in at_the_yes} <= {"GET", "HEAD"}
        assert not any(seen.size for seen in at_the_yes)
        names = {*REPO.split("/"), "EleutherAI", "pythia-70m-deduped", "nobody", "nothing"}
        names |= {"branch", "main", README, FACTS, "pythia-70m", "api", "models", "datasets"}
        names |= {"whoami-v2", "auth-check", "write", "revision", "tree", "resolve", ""}
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


def test_a_readme_of_somebodys_is_added_to(hub: LoopbackHub, send: Call) -> None:
    send("a")
    before, rest = text(hub, README).split(BEGIN)
    ours, _ = rest.split(END)
    mine = "# Mine\n\nexport HF_TOKEN=your_token_here\n\n"  # which is not refused
    foreign = f"{before}{mine}{BEGIN}{ours}{END}\n\nAfter.\n"
    hub.put(
        REPO, {README: foreign.replace("---\n", "---\nmine: {x: [1, 'two']}\n", 1).encode()}
    )
    send("b", "c")
    card = text(hub, README)
    assert all(f"| `{sae_id}` |" in card for sae_id in "abc")
    before, rest = card.split(BEGIN)
    assert metadata(hub)["mine"] == {"x": [1, "two"]}
    assert before.endswith(mine)
    assert rest.split(END)[1] == "\n\nAfter.\n"
    assert set(json.loads(text(hub, FACTS))["saes"]) == {"a", "b", "c"}


@pytest.mark.parametrize("create_pr", [False, True])
def test_an_upload_to_a_branch_that_moves_is_run_again(
    hub: LoopbackHub, send: Call, create_pr: bool
) -> None:
    """What is sent, or proposed, follows from what the branch has at its commit."""
    send("a")

    def another(seen: Seen) -> None:
        if "/commit/" in seen.path:
            hub.fault = lambda _: None
            send("b", "c")

    hub.fault = another
    assert "412" in refusal(send, "d", of=OSError, create_pr=create_pr)
    published = send("d", create_pr=create_pr)
    repo = hub.repos[REPO]
    files = repo.commits[published.commit].files
    assert set(json.loads(files[FACTS].content or b"")["saes"]) == {"a", "b", "c", "d"}
    assert all(b"| `%c` |" % sae_id in (files[README].content or b"") for sae_id in b"abcd")
    titles, ours = [commit.title for commit in repo.history()], [] if create_pr else ["Add d"]
    assert titles == [*ours, "Add 2 SAEs", "Add a", "initial commit"]
    assert len(repo.pull_requests) == create_pr


def test_branches_and_proposals(hub: LoopbackHub, send: Call) -> None:
    published = send("a", revision="next", public=True)
    repo = hub.repos[REPO]
    assert not repo.private
    assert repo.branches["next"] == published.commit != repo.branches["main"]
    assert send("a", revision="next", public=True).sent == 0
    hub.accounts["hf_you"] = Account("you")  # anybody may propose
    you = HfApi(hub.endpoint, token="hf_you")
    proposed = send("a", api=you, create_pr=True)
    assert proposed.url == f"{hub.endpoint}/{REPO}/discussions/1"
    assert list(repo.history()[0].files) == [".gitattributes"]


@pytest.mark.parametrize("public", [None, False, True])
@pytest.mark.parametrize("is_public", [None, False, True])
@pytest.mark.parametrize("revision", ["main", "next"])
def test_a_repository_is_private_or_public_as_it_is_or_as_is_said(
    hub: LoopbackHub,
    api: HfApi,
    send: Call,
    public: bool | None,
    is_public: bool | None,
    revision: str,
) -> None:
    """An option that contradicts what is there is told before anything is read or sent."""
    if is_public is not None:
        api.create_repo(REPO, private=not is_public)
        hub.log.clear()
    if None not in (public, is_public) and public != is_public:
        target = Target(REPO, revision, public=public)
        for dry_run in (False, True):
            said = refusal(upload, [Path("nowhere")], target, api=api, dry_run=dry_run)
            now = "public" if is_public else "private"
            assert f"`public` should be what {REPO} is already, {now}" in said
        assert not writes(hub)
        return
    assert send("a", public=public, revision=revision).sent > 0
    assert hub.repos[REPO].private is not bool(public if is_public is None else is_public)


def test_the_card_names_what_the_hub_has(
    hub: LoopbackHub, checked: Checked, send: Call
) -> None:
    def of(model: str) -> list[LocalSAE]:
        [sae] = checked("d")
        return [replace(sae, record=sae.record.model_copy(update={"model": model}))]

    send("a")
    assert "datasets" not in metadata(hub)
    hub.known_datasets.add("nobody/nothing")  # that all were trained on
    other = "google/gemma-2-2b"
    send(*of(other), base_model=other)
    assert metadata(hub)["base_model"] == ["EleutherAI/pythia-70m-deduped", other]
    assert metadata(hub)["datasets"] == ["nobody/nothing"]
    assert text(hub, README).count("whose own terms apply") == 0  # no licence
    hub.known_models.clear()
    hub.known_datasets.clear()
    unknown = refusal(send, *of("me/unknown"), base_model="me/unknown")
    assert "`base_model` should be a model on the Hub that this token sees" in unknown
    send("d", repo_id="me/others")
    [files] = [hub.repos["me/others"].history()[0].files]
    card = ModelCard(files[README].content.decode())
    assert not {"base_model", "datasets"} & card.data.to_dict().keys()


def test_the_licence_is_the_repositorys_and_one_of_the_hubs(
    hub: LoopbackHub, send: Call
) -> None:
    assert '"license" must be one of' in refusal(send, "a", license="mitt", of=OSError)
    assert not writes(hub)
    send("a", license="mit")
    assert "license: mit" in text(hub, README)
    assert send("a").sent == 0
    message = refusal(send, "b", "c", license="apache-2.0")
    assert "`license` should be mit, as in README.md of the repository" in message


# Who may


@pytest.mark.parametrize("account", [None, Account("me", role="read"), Account("you")])
@pytest.mark.parametrize("exists", [False, True])
def test_a_token_that_may_not_write_writes_nothing(
    hub: LoopbackHub, api: HfApi, send: Call, account: Account | None, exists: bool
) -> None:
    if exists:
        api.create_repo(REPO, private=True)
        hub.log.clear()
    if account is not None:
        hub.accounts["hf_another"] = account
    message = refusal(send, "a", api=HfApi(hub.endpoint, token="hf_another"), of=OSError)
    assert "hf_another" not in message
    asked = {"/api/repos/create", f"/api/models/{REPO}/preupload/main"}
    assert {seen.path for seen in writes(hub)} <= asked
    assert [len(repo.history()) for repo in hub.repos.values()] == [1] * exists


# What goes wrong


FAULTS = {
    **{str(status): Fault(status) for status in (403, 412, 500)},
    "connection cut": Fault(0),
    "connection cut, but done": Fault(0, after=True),
}


def state(hub: LoopbackHub) -> str:
    """Say how much of an upload is on the branch."""
    repo = hub.repos.get(REPO)
    found = repo.history()[0].files if repo and "main" in repo.branches else {}
    saes = [f"{sae_id}/{name}" for sae_id in "ab" for name in (CFG, WEIGHTS)]
    there = [path in found for path in [*saes, README, FACTS]]
    return "complete" if all(there) else "HALF" if any(there) else "as it was"


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_at_any_request_leaves_nothing_half(
    send: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: Fault
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between the client's repetitions
    failures = 0
    for number in count():
        storage = tmp_path / str(number)
        storage.mkdir()
        with serving(storage) as hub:
            hub.fault = lambda seen, number=number: fault if seen.number == number else None
            client, error = HfApi(hub.endpoint, token=TOKEN), None
            try:
                send("a", "b", api=client)
            except (httpx2.HTTPError, ValueError, OSError, RuntimeError) as raised:
                error = str(raised)
                failures += 1
            assert TOKEN not in (error or "")
            request = [f"{seen.method} {seen.path}" for seen in hub.log[number:][:1]]
            allowed = {"complete"} if error is None else {"as it was", "complete"}
            assert state(hub) in allowed, request
            hub.fault = lambda _: None
            send("a", "b", api=client)
            assert state(hub) == "complete", request
            ours = [commit.title for commit in hub.repos[REPO].history()].count("Add 2 SAEs")
        if not request:  # that would have met the fault
            assert error is None
            break
        # What is said to be no model of the Hub is left off the card, until it is one.
        assert ours == 1 or "EleutherAI" in request[0], request
    assert number > 12
    assert 0 < failures <= number


def test_what_is_sent_is_what_was_checked_whatever_happens_to_its_folder(
    api: HfApi, tmp_path: Path
) -> None:
    folder = plant_sae(tmp_path / "a", d_in=8)
    before = SAE.load_from_disk(folder)

    def spoil(*_: Any) -> bool:
        (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-4] + b"nan!")
        (folder / CFG).unlink()
        return True

    published = upload([folder], REPO, confirm=spoil, api=api)
    api.snapshot_download(REPO, revision=published.commit, local_dir=tmp_path / "there")
    torch.testing.assert_close(SAE.load_from_disk(tmp_path / "there/a").W_dec, before.W_dec)


def test_a_gitignore_there_keeps_no_file_out_of_the_commit(
    hub: LoopbackHub, send: Call
) -> None:
    hub.put(REPO, {".gitignore": b"*.safetensors\n*.png\n*.json\n"})
    sent = send("a").sent
    assert len(hub.repos[REPO].history()[0].files) == sent + 1  # and itself
    assert send("a").sent == 0


def test_a_repository_that_cannot_be_joined_with_is_left(hub: LoopbackHub, send: Call) -> None:
    send("b/c")
    assert "An SAE should not lie in another SAE's folder" in refusal(send, "b")
    hub.put(REPO, {README: b"---\nbase_model: gpt2-small\n---\n"})
    assert "base_model" in refusal(send, "a", of=OSError)
    for path, content in {README: b"---\n- a\n---\n", FACTS: b'{"format": 99}'}.items():
        hub.put(REPO, {README: b"", path: content})
        refusal(send, "a", of=ValueError)
    assert len(hub.repos[REPO].history()) == 5


# Several uploads, and those that are killed

UPLOAD = """
import sys
from huggingface_hub import CommitOperationAdd, HfApi
from sae_lens_c2r.hub.proposal import Proposal, Target, take_snapshot
from sae_lens_c2r.hub.uploading import publish
name = sys.argv[1]
api, target = HfApi(), Target("me/saes")
files = [(f"{name}/{i}.safetensors", name.encode() * 99 + b"%d" % i) for i in range(3)]
files = [CommitOperationAdd(*file) for file in [*files, (f"{name}/cfg.json", b"{}")]]
publish(api, Proposal(target, take_snapshot(api, target), [], files, card=""))
"""


def names(hub: LoopbackHub) -> set[str]:
    """The uploads that are complete, where none is half there."""
    files = hub.repos[REPO].history()[0].files
    found = {path.partition("/")[0] for path in files if "/" in path}
    for name in found:
        assert sum(path.startswith(f"{name}/") for path in files) == 4, name
    return found


@pytest.mark.parametrize("number", range(10))  # the last one's request is the commit
def test_a_killed_upload_is_continued(hub: LoopbackHub, number: int) -> None:
    process = forkserver.start("-c", UPLOAD, "a", env=hub.environment())

    def kill(seen: Seen) -> None:
        if seen.number == number:
            process.kill()
            process.wait()

    hub.fault = kill
    assert process.wait() == -signal.SIGKILL
    assert (number == 9) == ("/commit/" in hub.log[-1].path)
    assert REPO not in hub.repos or names(hub) in (set(), {"a"})
    hub.fault = lambda _: None
    status, output = run_client(hub, "-c", UPLOAD, "a", home=hub.storage.parent / "home")
    assert status == 0, output
    assert names(hub) == {"a"}
    titles = [commit.title for commit in hub.repos[REPO].history()]
    assert titles == ["Add 0 SAEs", "initial commit"]


# The command


def test_the_command_from_folders_to_from_pretrained(hub: LoopbackHub, tmp_path: Path) -> None:
    plant_sae(tmp_path / "saes" / "a", d_in=8)
    command = ("-m", "sae_lens_c2r", "upload", "saes")
    run = partial(run_client, hub, *command, home=tmp_path / "home")
    status, output = run("--repo-id", REPO, "--dry-run")
    assert status == 0, output
    assert "Nothing was sent" in output
    assert not writes(hub)
    status, output = run("--repo-id", REPO)
    assert (status, "Aborted" in output) == (1, True)
    assert not hub.repos
    said = ("--private", "--license", "mit")
    status, output = run("--repo-id", REPO, "--yes", *said)
    assert status == 0, output
    assert hub.repos[REPO].private
    assert "+# saes" in output
    assert f"Published: {hub.endpoint}/{REPO}/commit/" in output
    assert "license: mit" in text(hub, README)
    status, output = run("--repo-id", REPO, "--public", "--yes")
    assert (status, f"`--public` should be what {REPO} is already" in output) == (2, True)
    assert hub.repos[REPO].private
    status, output = run("--repo-id", "no", "--yes")
    assert (status, "`--repo-id` should be like org/name" in output) == (2, True)
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert not any(TOKEN in path.read_text() for path in files)
