"""Tables show every cell as it is, in a terminal and in Markdown."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from sae_lens_c2r.reporting.tables import short_names, terminal_tables


def printed(*table: Any, width: int = 80, **options: Any) -> list[str]:
    console = Console(file=StringIO(), width=width)
    console.print(*terminal_tables(*table, width=width, **options), sep="\n")
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in lines)
    return [line.strip() for line in lines if line.strip()]


def test_nothing_in_a_cell_is_markup() -> None:
    for name in ("[/k=3] a|b", "[red]x[/red]", ":smile:", "a\\[b"):
        assert printed(["SAE"], [[name]])[-1] == name


def test_a_long_name_is_broken_and_no_number_is_cut() -> None:
    name = "/a/very/long/path/" * 6
    rows = printed(["SAE", "L0"], [[name, "12,345.678"]], width=40)[2:]
    assert "".join(row.split()[0] for row in rows) == name
    assert rows[0].endswith("12,345.678")


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_columns_without_room_are_in_further_tables(width: int) -> None:
    name, numbers = "width_1k/batchtopk_c2r_k32", [f"0.{n}23" for n in range(9)]
    table = ["SAE", *(f"column\n{n}" for n in range(9))], [[name, *numbers]]
    found = [line.split() for line in printed(*table, width=width, note="Note.")]
    rows = [line for line in found if line[0] == name]
    assert [cell for row in rows for cell in row[1:]] == numbers
    assert (len(rows) == 1) is (width == 200)
    assert found[-1] == ["Note."]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["saes/a/x", "saes/a/y"], ["x", "y"]),
        (["saes/a/x", "saes/b/x"], ["a/x", "b/x"]),
        (["saes/x"], ["x"]),
        (["saes/x", "/saes/x"], ["saes/x", "/saes/x"]),
        (["saes", "saes/saes"], ["saes", "saes/saes"]),
        (["me/repo x", "me/repo y"], ["repo x", "repo y"]),
        ([], []),
    ],
)
def test_names_are_the_parts_that_differ(names: list[str], shown: list[str]) -> None:
    assert short_names(names) == shown
