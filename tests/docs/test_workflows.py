"""The workflows: they may do no more than they have to.

`make workflows` checks them by actionlint.
"""

import re

import yaml

from tests.forkserver import ROOT

WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in (ROOT / ".github" / "workflows").glob("*.yml")
}
STEPS = [
    step
    for workflow in WORKFLOWS.values()
    for job in workflow["jobs"].values()
    for step in job["steps"]
]
MORE = {  # than to read
    "docs.yml": {"deploy": {"pages": "write", "id-token": "write"}},
    "release.yml": {"publish": {"id-token": "write"}},
    "tests.yml": {},
}


def test_a_workflow_may_only_read() -> None:
    assert WORKFLOWS.keys() == MORE.keys()
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] == {"contents": "read"}
        jobs = workflow["jobs"].items()
        given = {name: job["permissions"] for name, job in jobs if "permissions" in job}
        assert given == MORE[name]


def test_an_action_is_pinned_to_a_commit() -> None:
    for step in STEPS:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", "a/b@" + "0" * 40))
