"""A fault at every request of an upload in turn: `python -m tests.hub.fault_table`.

Prints, for each request and each fault, the branch after the upload that met it and after a
second one that did not. `--kinds` has one fault of each kind in place of all of them;
`--short` joins the faults that come to the same at a request; `--json` prints all for a test.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from huggingface_hub import HfApi, constants, logging, set_client_factory
from huggingface_hub.utils import disable_progress_bars
from rich.console import Console
from rich.table import Table

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.local_saes import LocalSAE, Submission, check_saes
from sae_lens_c2r.hub.rules import Target
from tests.evaluation.planted import plant_sae
from tests.hub.conftest import CFG, REPO, WEIGHTS, send
from tests.hub.server import TOKEN, Fault, LoopbackHub, Seen, serving

FAULTS = {
    **{str(status): Fault(status) for status in (401, 403, 409, 412, 429, 500, 503)},
    "500, but done": Fault(500, after=True),
    "connection cut": Fault(0),
    "connection cut, but done": Fault(0, after=True),
    "timeout": Fault(0),
}
# Refused, moved in between, failed, done although it seemed to fail, and never answered.
KINDS = ("403", "412", "500", "connection cut, but done", "timeout")


@dataclass(frozen=True)
class Row:
    """The outcome of one fault."""

    request: str
    fault: str
    outcome: str  # what the first upload said
    after: str  # the branch after it: as it was, or complete
    again: str  # the branch after a second upload
    commits: int  # of ours on the branch in the end


def two_saes(folder: Path) -> list[LocalSAE]:
    """Two SAEs, checked once for all uploads."""
    for seed, sae_id in enumerate("ab"):
        plant_sae(folder / "saes" / sae_id, d_in=8, seed=seed)
    return check_saes(Submission([folder / "saes"]), folder / "scratch")


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
        send(saes, HfApi(hub.endpoint, token=TOKEN), Target(REPO, tag="v1"))
    except UserError as error:
        return "TOLD THE TOKEN" if TOKEN in str(error) else "failed"
    return "succeeded"


class Transport(httpx2.HTTPTransport):
    """For whom a connection that is cut is an answer that took too long."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return super().handle_request(request)
        except httpx2.TransportError as error:
            raise httpx2.ReadTimeout(str(error), request=request) from error


def meet(name: str) -> None:
    """Have the client meet a fault, of which a timeout is one that takes no time."""
    transport = Transport if name == "timeout" else httpx2.HTTPTransport
    options = {"follow_redirects": True, "timeout": None}
    set_client_factory(lambda: httpx2.Client(transport=transport(), **options))


def requests_of_an_upload(saes: list[LocalSAE]) -> list[Seen]:
    """The requests of one that meets no fault."""
    with TemporaryDirectory() as storage, serving(Path(storage)) as hub:
        assert upload(hub, saes) == "succeeded"
        return hub.log


def rows(saes: list[LocalSAE], names: Collection[str]) -> Iterator[Row]:
    """Every request with every one of these faults."""
    for seen in requests_of_an_upload(saes):
        for name in names:
            with TemporaryDirectory() as storage, serving(Path(storage)) as hub:
                meet(name)
                hub.fault = at_request(seen.number, FAULTS[name])
                outcome = upload(hub, saes)
                after = state(hub)
                hub.fault = lambda _: None
                upload(hub, saes)
                repo = hub.repos[REPO]
                titles = [commit.title for commit in repo.history()]
                tagged = repo.tags.get("v1") == repo.history()[0].oid
                path = re.sub("[0-9a-f]{64}", "OID", seen.path)
                yield Row(
                    f"{seen.number + 1}. {seen.method} {path}",
                    name,
                    outcome,
                    after,
                    state(hub) + (", tagged" if tagged else ""),
                    titles.count("Add 2 SAEs"),
                )


def at_request(number: int, fault: Fault) -> Callable[[Seen], Fault | None]:
    """That fault at that request, and none at others."""
    return lambda seen: fault if seen.number == number else None


def main() -> None:
    """Print the table."""
    constants.HF_HUB_OFFLINE, constants.HF_HUB_DISABLE_XET = False, True
    os.environ["NO_PROXY"] = "*"
    disable_progress_bars()
    logging.set_verbosity_error()  # the client's own repetitions
    time.sleep = lambda _: None  # the client's pauses between repetitions
    names = KINDS if "--kinds" in sys.argv else FAULTS
    with TemporaryDirectory() as folder:
        found = list(rows(two_saes(Path(folder)), names))
    if "--json" in sys.argv:
        print(json.dumps([asdict(row) for row in found]))
        return
    if "--short" in sys.argv:
        found = [*joined(found, len(names))]
    table = Table("request", "fault", "upload", "branch after it", "after a second", "commits")
    for row in found:
        table.add_row(*map(str, asdict(row).values()))
    Console(width=130).print(table)


def joined(found: list[Row], n_faults: int) -> Iterator[Row]:
    """The faults with the same outcome at the same request, in one row."""
    alike: dict[Row, list[str]] = {}
    for row in found:
        alike.setdefault(replace(row, fault=""), []).append(row.fault)
    for row, faults in alike.items():
        yield replace(row, fault="all" if len(faults) == n_faults else ", ".join(faults))


if __name__ == "__main__":
    main()
