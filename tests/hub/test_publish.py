"""An upload is on the Hub as a whole, or not at all, whatever fails."""

import json
import os
import threading
from contextlib import suppress

import pytest

from tests import forkserver
from tests.forkserver import ROOT
from tests.hub.fault_table import FAULTS, KINDS
from tests.hub.server import STORAGE_HOST, TOKEN, Account, LoopbackHub, Seen

exhaustive = pytest.mark.exhaustive


@pytest.mark.parametrize("chosen", [["--kinds"], pytest.param([], marks=exhaustive)], ids=str)
def test_a_fault_at_any_request_leaves_nothing_half(chosen: list[str]) -> None:
    ran = forkserver.run("-m", "tests.hub.fault_table", "--json", *chosen, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout.splitlines()[-1])
    assert len({row["request"] for row in rows}) > 15
    assert {row["fault"] for row in rows} == set(KINDS if chosen else FAULTS)
    for row in rows:
        assert row["after"] in ("as it was", "complete"), row
        assert (row["outcome"] == "succeeded") <= (row["after"] == "complete"), row
        assert row["again"] == "complete, tagged", row
        assert row["commits"] == 1, row
    assert {row["outcome"] for row in rows} == {"succeeded", "failed"}


UPLOAD = """
import sys
from huggingface_hub import HfApi
from sae_lens_c2r.hub.remote.difference import PlannedFile
from sae_lens_c2r.hub.remote.publish import publish
from sae_lens_c2r.hub.target import Target
endpoint, name, token = sys.argv[1:]
content = name.encode() * 99
files = [PlannedFile.of(f"{name}/{i}.safetensors", content + b"%d" % i) for i in range(3)]
files.append(PlannedFile.of(f"{name}/cfg.json", b"{}"))
api = HfApi(endpoint, token=token)
print(publish(api, Target("me/saes"), lambda _: files, message=name, seconds=0.1))
"""


ONLINE = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}


def start(hub: LoopbackHub, name: str) -> forkserver.Process:
    arguments = ("-c", UPLOAD, hub.endpoint, name, TOKEN)
    return forkserver.start(*arguments, env={**os.environ, **ONLINE})


def finish(hub: LoopbackHub, name: str, token: str = TOKEN) -> tuple[int, str]:
    arguments = ("-c", UPLOAD, hub.endpoint, name, token)
    ended = forkserver.run(*arguments, env={**os.environ, **ONLINE})
    return ended.returncode, ended.stdout + ended.stderr


def names(hub: LoopbackHub) -> set[str]:
    """The uploads that are complete, where none is half there."""
    files = hub.repos["me/saes"].history()[0].files
    found = {path.partition("/")[0] for path in files if "/" in path}
    for name in found:
        assert sum(path.startswith(f"{name}/") for path in files) == 4, name
    return found


def test_what_is_there_is_not_sent_again(hub: LoopbackHub) -> None:
    for _ in range(2):
        status, output = finish(hub, "a")
        assert status == 0, output
    assert "sent=0" in output
    first = next(i for i, seen in enumerate(hub.log) if "/commit/" in seen.path)
    assert not [seen for seen in hub.log[first + 1 :] if seen.writes]
    assert hub.repos["me/saes"].private
    assert not [seen for seen in hub.log if seen.host == STORAGE_HOST and seen.authorization]


def test_two_uploads_at_once_are_both_there(hub: LoopbackHub) -> None:
    assert finish(hub, "first")[0] == 0
    waiting = threading.Barrier(2, timeout=forkserver.LIMIT)

    def meet(seen: Seen) -> None:  # both have looked at the branch before either commits
        if "/commit/" in seen.path:
            with suppress(threading.BrokenBarrierError):
                waiting.wait()
            waiting.abort()  # nobody waits for a commit that is repeated

    hub.fault = meet
    both = [start(hub, name) for name in ("a", "b")]
    for process in both:
        assert process.wait() == 0
    assert names(hub) == {"first", "a", "b"}
    assert [commit.title for commit in hub.repos["me/saes"].history()[2:]] == [
        "first",
        "initial commit",
    ]


@pytest.mark.parametrize("number", range(10))
def test_a_killed_upload_is_continued(hub: LoopbackHub, number: int) -> None:
    process = start(hub, "a")

    def kill(seen: Seen) -> None:
        if seen.number == number:
            process.kill()
            process.wait()

    hub.fault = kill
    process.wait()
    assert "me/saes" not in hub.repos or names(hub) in (set(), {"a"})
    hub.fault = lambda _: None
    status, output = finish(hub, "a")
    assert status == 0, output
    assert names(hub) == {"a"}
    titles = [commit.title for commit in hub.repos["me/saes"].history()]
    assert titles == ["a", "initial commit"]


@pytest.mark.parametrize(
    ("account", "reason"),
    [
        (None, "There is no token, or the Hub does not accept it"),
        (Account("me", role="read"), "The token may not write to me/saes"),
        (Account("me", role="fineGrained"), "The token may not write to me/saes"),
        (Account("you"), "The token may not write to me/saes"),
    ],
)
def test_a_token_that_may_not_is_told_so(
    hub: LoopbackHub, account: Account | None, reason: str
) -> None:
    token = "hf_other"
    if account is not None:
        hub.accounts[token] = account
    status, output = finish(hub, "a", token)
    assert status == 1
    assert reason in output
    assert token not in output
    assert not hub.repos
