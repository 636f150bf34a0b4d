"""What an upload changes follows from what it brings and from what a repository holds."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from huggingface_hub import HfApi
from huggingface_hub.hf_api import RepoFile

from sae_lens_c2r.hub.card import content as content_module
from sae_lens_c2r.hub.card.content import Content
from sae_lens_c2r.hub.card.facts import read_facts
from sae_lens_c2r.hub.card.pictures import pictures
from sae_lens_c2r.hub.local.prepare_upload import PreparedUpload
from sae_lens_c2r.hub.names import FACTS, README
from sae_lens_c2r.hub.proposal import Proposal
from sae_lens_c2r.hub.remote.difference import PlannedFile, difference
from sae_lens_c2r.hub.remote.publish import publish
from sae_lens_c2r.hub.remote.snapshot import Snapshot, take_snapshot
from sae_lens_c2r.hub.target import Target
from tests.hub.conftest import REPO
from tests.hub.server import Fault, LoopbackHub, Seen
from tests.hub.test_card import facts, sae


def holding(*files: PlannedFile, large: bool = False) -> Snapshot:
    """A snapshot of a repository that holds these files."""
    tree = {}
    for file in files:
        about: dict[str, Any] = {"size": file.size, "path": file.path_in_repo}
        about["oid"] = "a pointer's" if large else file.blob_id
        if large:
            about["lfs"] = {"size": file.size, "oid": file.sha256, "pointerSize": 1}
        tree[file.path_in_repo] = RepoFile(**about)
    known = {file.path_in_repo: file.content for file in files}
    return Snapshot("c", tree, known.get, private=True)  # type: ignore[arg-type]


def content_of(**saes: Any) -> Content:
    known = facts(**saes)
    return Content(known, pictures(known), [PlannedFile.of("a/cfg.json", b"{}")])


@pytest.mark.parametrize("large", [False, True])
def test_a_file_is_there_if_its_content_is(large: bool) -> None:
    a, b, c = (PlannedFile.of(name, name.encode()) for name in "abc")
    other = PlannedFile.of("b", b"other")
    found = difference(lambda _: [a, b, c], holding(a, other, large=large))
    assert [file.path_in_repo for file in found.files] == ["b", "c"]
    assert found.replaced == {"b"}
    assert (found.unchanged, found.size) == (1, 2)
    assert a.sha256 == sha256(b"a").hexdigest()


def test_what_has_been_brought_is_not_brought_again() -> None:
    content = content_of(a=sae())
    files = content.files(Snapshot())
    assert difference(content.files, Snapshot()).files == tuple(files)
    assert difference(content.files, holding(*files)).files == ()


def test_the_same_content_joins_what_each_snapshot_has() -> None:
    """Nothing is kept from one snapshot to the next."""
    content, other = content_of(a=sae()), content_of(b=sae())
    alone = content.files(Snapshot())
    joined = {f.path_in_repo: f for f in content.files(holding(*other.files(Snapshot())))}
    assert set(read_facts(joined[FACTS].content).saes) == {"a", "b"}  # type: ignore[arg-type]
    assert b"| `b` |" in joined[README].content  # type: ignore[operator]
    assert content.files(Snapshot()) == alone


def test_pictures_are_drawn_again_only_of_other_saes(monkeypatch: pytest.MonkeyPatch) -> None:
    content, other = content_of(a=sae()), content_of(b=sae())
    drawn: list[Any] = []
    monkeypatch.setattr(content_module, "pictures", lambda of: drawn.append(of) or {})
    content.files(Snapshot())
    content.files(holding(*content.files(Snapshot())))
    assert not drawn
    content.files(holding(*other.files(Snapshot())))
    assert [set(each.saes) for each in drawn] == [{"a", "b"}]


def test_facts_are_in_memory_as_they_are_read(
    prepared_as: Callable[..., PreparedUpload],
) -> None:
    """So that a card does not depend on whether its facts come from a file."""
    mixed = facts(b=sae(), a=sae())
    assert list(mixed.saes) == ["a", "b"]
    for known in (mixed, prepared_as("a", "b/c").content.facts):
        again = read_facts(known.to_json())
        assert (again, list(again.saes)) == (known, list(known.saes))
        assert again.to_json() == known.to_json()


def test_the_cards_difference_is_of_the_snapshot() -> None:
    content = content_of(a=sae())
    mine = PlannedFile.of(README, b"# Mine\n")
    prepared, target = PreparedUpload([], content), Target(REPO)
    proposal = Proposal(target, prepared, difference(content.files, holding(mine)))
    lines = proposal.card_diff.splitlines()
    assert lines[:2] == ["--- on the Hub", "+++ to be sent"]
    assert " # Mine" in lines
    assert not [line for line in lines[2:] if line.startswith("-")]
    again = difference(content.files, holding(*content.files(Snapshot())))
    assert Proposal(target, prepared, again).card_diff == ""


def test_a_snapshot_is_of_one_commit(hub: LoopbackHub, api: HfApi) -> None:
    target, files = Target(REPO), [PlannedFile.of("a.txt", b"1")]
    assert take_snapshot(api, target) == Snapshot()
    publish(api, target, lambda _: files, message="1")
    before = take_snapshot(api, target)
    files = [PlannedFile.of("a.txt", b"2"), PlannedFile.of("b.txt", b"2")]
    publish(api, target, lambda _: files, message="2")
    assert before.read("a.txt") == b"1"
    assert before.read("b.txt") is None
    assert before.commit == hub.repos[REPO].history()[1].oid
    elsewhere = take_snapshot(api, Target(REPO, revision="next"))
    assert (elsewhere.commit, elsewhere.private, dict(elsewhere.tree)) == (None, True, {})


@pytest.mark.parametrize("create_pr", [False, True])
def test_files_are_asked_for_again_where_the_branch_has_moved(
    hub: LoopbackHub, api: HfApi, create_pr: bool
) -> None:
    target = Target(REPO)
    publish(api, target, lambda _: [PlannedFile.of("a", b"a")], message="a")
    asked: list[str | None] = []

    def files(snapshot: Snapshot) -> list[PlannedFile]:
        asked.append(snapshot.commit)
        return [PlannedFile.of("n", str(len(snapshot.tree)).encode())]

    def move(seen: Seen) -> Fault | None:
        if "/commit/" in seen.path:
            hub.fault = lambda _: None
            publish(api, target, lambda _: [PlannedFile.of("b", b"b")], message="b")
        return None

    first = difference(files, take_snapshot(api, target))
    hub.fault = move
    proposed = Target(REPO, create_pr=create_pr)
    published = publish(api, proposed, files, message="n", first=first)
    repo = hub.repos[REPO]
    assert [repo.commits[oid].title for oid in asked if oid] == ["a", "b"]
    assert repo.commits[published.commit].files["n"].content == b"3"
    assert len(repo.pull_requests) == create_pr
