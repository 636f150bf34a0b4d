"""The workflows: what they run is there, and they may do no more than they have to.

`make workflows` checks them by actionlint.
"""

import re
import subprocess

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
MATRIX: list[dict[str, str]] = WORKFLOWS["tests.yml"]["jobs"]["tests"]["strategy"]["matrix"][
    "include"
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


def test_every_supported_python_is_tested_by_targets_of_the_makefile() -> None:
    assert {each["python"] for each in MATRIX} == {"3.10", "3.11", "3.12", "3.13", "3.14"}
    targets = {each["target"] for each in MATRIX}
    assert targets == {"test", "test-oldest", "test-newest"}
    targets |= {step["run"].split()[1] for step in STEPS if "make " in step.get("run", "")}
    for target in targets - {'"$TARGET"'}:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)
