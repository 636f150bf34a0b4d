"""An upload is on the Hub as a whole, or not at all, whatever fails."""

import json
import subprocess
import sys


def test_a_fault_at_any_request_leaves_nothing_half() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.hub.fault_table", "--json"],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout.splitlines()[-1])
    assert len({row["request"] for row in rows}) > 10
    for row in rows:
        assert row["after"] in ("as it was", "complete"), row
        assert (row["outcome"] == "succeeded") <= (row["after"] == "complete"), row
        assert row["again"] == "complete", row
        assert row["commits"] == 1, row
    assert {row["outcome"] for row in rows} == {"succeeded", "failed"}
