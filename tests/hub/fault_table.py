"""A fault at every request of an upload in turn: `python -m tests.hub.fault_table`.

Prints, for each request and each fault, the branch after the upload that met it and after a
second one that did not. `--json` prints the same for a test.
"""

import os

os.environ |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "*"}
os.environ.pop("HF_HUB_OFFLINE", None)

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from huggingface_hub import HfApi, logging, set_client_factory
from rich.console import Console
from rich.table import Table

from sae_lens_c2r.errors import UserError
from sae_lens_c2r.hub.plan import PlannedFile
from sae_lens_c2r.hub.publish import publish
from tests.hub.server import TOKEN, Fault, LoopbackHub, Seen, serving

REPO = "me/saes"
FAULTS = {
    **{str(status): Fault(status) for status in (401, 403, 409, 412, 429, 500, 503)},
    "500, but done": Fault(500, after=True),
    "connection cut": Fault(0),
    "connection cut, but done": Fault(0, after=True),
    "timeout": Fault(0, seconds=0.4),
}


@dataclass(frozen=True)
class Row:
    """What came of one fault.

    Args:
        request: The request that met it.
        fault: The fault.
        outcome: Whether the first upload said that it had succeeded.
        after: The branch after it: as it was, or complete.
        again: The branch after a second upload.
        commits: Commits of ours on the branch in the end.
    """

    request: str
    fault: str
    outcome: str
    after: str
    again: str
    commits: int


def files(folder: Path) -> list[PlannedFile]:
    """Two SAEs and a card, so small that they are sent in no time."""
    weights = folder / "sae_weights.safetensors"
    weights.write_bytes(b"weights" * 100)
    other = folder / "other.safetensors"
    other.write_bytes(b"others" * 100)
    return [
        PlannedFile.of("README.md", b"---\nlibrary_name: saelens\n---\n# SAEs\n"),
        PlannedFile.of("a/cfg.json", b"{}"),
        PlannedFile.of("a/sae_weights.safetensors", weights),
        PlannedFile.of("b/cfg.json", b"{}"),
        PlannedFile.of("b/sae_weights.safetensors", other),
    ]


def state(hub: LoopbackHub, wanted: list[PlannedFile]) -> str:
    """What there is of an upload on the branch."""
    repo = hub.repos.get(REPO)
    found = repo.history()[0].files if repo and "main" in repo.branches else {}
    there = [file.path_in_repo in found for file in wanted]
    return "complete" if all(there) else "HALF" if any(there) else "as it was"


def upload(hub: LoopbackHub, wanted: list[PlannedFile]) -> str:
    """Upload; what is said of it."""
    try:
        publish(HfApi(hub.endpoint, token=TOKEN), REPO, lambda _: wanted, message="Two SAEs")
    except UserError as error:
        return "TOLD THE TOKEN" if TOKEN in str(error) else "failed"
    return "succeeded"


def requests_of_an_upload(folder: Path) -> list[Seen]:
    """The requests of one that meets no fault."""
    with TemporaryDirectory() as storage, serving(Path(storage)) as hub:
        assert upload(hub, files(folder)) == "succeeded"
        return hub.log


def at_request(number: int, fault: Fault) -> Callable[[Seen], Fault | None]:
    """That fault at that request, and none at others."""
    return lambda seen: fault if seen.number == number else None


def rows(folder: Path) -> Iterator[Row]:
    """Every request with every fault."""
    for seen in requests_of_an_upload(folder):
        for name, fault in FAULTS.items():
            with TemporaryDirectory() as storage, serving(Path(storage)) as hub:
                wanted, at = files(folder), seen.number
                hub.fault = lambda each, at=at, fault=fault: (
                    fault if each.number == at else None
                )  # type: ignore[misc]
                outcome = upload(hub, wanted)
                after = state(hub, wanted)
                hub.fault = lambda _: None
                upload(hub, wanted)
                titles = [commit.title for commit in hub.repos[REPO].history()]
                yield Row(
                    f"{seen.number + 1}. {seen.method} {_short(seen.path)}",
                    name,
                    outcome,
                    after,
                    state(hub, wanted),
                    titles.count("Two SAEs"),
                )


def _short(path: str) -> str:
    parts = ["OID" if len(part) == 64 else part for part in path.split("/")]
    return "/".join(parts)


def main() -> None:
    """Print the table."""
    logging.set_verbosity_error()  # the client's own repetitions
    time.sleep = lambda _: None  # the client's pauses between repetitions
    set_client_factory(lambda: httpx2.Client(timeout=0.2, follow_redirects=True))
    with TemporaryDirectory() as folder:
        found = list(rows(Path(folder)))
    if "--json" in sys.argv:
        print(json.dumps([asdict(row) for row in found]))
        return
    table = Table("request", "fault", "upload", "branch after it", "after a second", "commits")
    for row in found:
        table.add_row(*map(str, asdict(row).values()))
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
