"""A fault at every request of an upload in turn, and what comes of it."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx2
from huggingface_hub import HfApi, set_client_factory
from huggingface_hub.utils._http import default_client_factory

from sae_lens_c2r.hub.local_saes import LocalSAE
from tests.hub.conftest import CFG, REPO, WEIGHTS, send
from tests.hub.server import TOKEN, Fault, LoopbackHub, serving

FAULTS = {
    **{str(status): Fault(status) for status in (401, 403, 409, 412, 429, 500, 503)},
    "500, but done": Fault(500, after=True),
    "connection cut": Fault(0),
    "connection cut, but done": Fault(0, after=True),
    "timeout": Fault(0),
}
# Refused, moved in between, failed, done although it seemed to fail, and never answered.
KINDS = ("403", "412", "500", "connection cut, but done", "timeout")


class Row(NamedTuple):
    """The outcome of one fault."""

    request: str
    fault: str
    outcome: str  # what the first upload said
    after: str  # the branch after it: as it was, or complete
    again: str  # the branch after a second upload
    commits: int  # of ours on the branch in the end


def state(hub: LoopbackHub) -> str:
    """Say how much of an upload is on the branch."""
    repo = hub.repos.get(REPO)
    found = repo.history()[0].files if repo and "main" in repo.branches else {}
    saes = [f"{sae_id}/{name}" for sae_id in "ab" for name in (CFG, WEIGHTS)]
    there = [path in found for path in [*saes, "README.md", "sae-lens-c2r.json"]]
    return "complete" if all(there) else "HALF" if any(there) else "as it was"


def upload(hub: LoopbackHub, saes: list[LocalSAE]) -> str:
    """Upload; what is said of it."""
    try:
        send(saes, HfApi(hub.endpoint, token=TOKEN))
    except (httpx2.HTTPError, ValueError, OSError, RuntimeError) as error:
        return "TOLD THE TOKEN" if TOKEN in str(error) else "failed"
    return "succeeded"


class Transport(httpx2.HTTPTransport):
    """For whom a connection that is cut is an answer that took too long."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return super().handle_request(request)
        except httpx2.TransportError as error:
            raise httpx2.ReadTimeout(str(error), request=request) from error


def meet(hub: LoopbackHub, number: int, name: str) -> None:
    """Have uploads meet a fault at one request; a timeout is one that takes no time."""
    transport = Transport if name == "timeout" else httpx2.HTTPTransport
    options = {"follow_redirects": True, "timeout": None}
    set_client_factory(lambda: httpx2.Client(transport=transport(), **options))
    hub.fault = lambda seen: FAULTS[name] if seen.number == number else None


def rows(saes: list[LocalSAE], names: Collection[str]) -> Iterator[Row]:
    """Every request of an upload of the SAEs `a` and `b` with every one of these faults."""
    with TemporaryDirectory() as storage, serving(Path(storage)) as hub:
        assert upload(hub, saes) == "succeeded"
    for number, path in [(seen.number, f"{seen.method} {seen.path}") for seen in hub.log]:
        for name in names:
            with TemporaryDirectory() as storage, serving(Path(storage)) as hub:
                meet(hub, number, name)
                outcome, after = upload(hub, saes), state(hub)
                hub.fault = lambda _: None
                upload(hub, saes)
                repo = hub.repos[REPO]
                commits = repo.history()
                ours = [commit.title for commit in commits].count("Add 2 SAEs")
                request = f"{number + 1}. {re.sub('[0-9a-f]{64}', 'OID', path)}"
                yield Row(request, name, outcome, after, state(hub), ours)
    set_client_factory(default_client_factory)
