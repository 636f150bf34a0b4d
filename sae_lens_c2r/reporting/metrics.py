"""The metrics of SAEs: their titles, units, formats and glossary, and tables of them."""

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from sae_lens_c2r.reporting.tables import markdown_table, terminal_tables


@dataclass(frozen=True)
class Metric:
    """A number of an SAE, as every table shows it."""

    title: str
    heading: str = ""  # the title in a few letters, for a terminal
    better: int = 0  # 1 for more, -1 for less, and 0 for neither
    shown: str = ".3f"  # the format of its numbers
    line: str = ""  # of the glossary
    names: tuple[str, ...] = ()  # in others' results and in earlier files

    @property
    def arrow(self) -> str:
        """A sign for which is better."""
        return {1: "↑", 0: "", -1: "↓"}[self.better]

    @property
    def full_title(self) -> str:
        """The title with the sign."""
        return f"{self.title} {self.arrow}".rstrip()


_CATALOGUE = Path(__file__).with_name("metrics.yaml").read_text(encoding="utf-8")
METRICS = {key: Metric(**about) for key, about in yaml.safe_load(_CATALOGUE).items()}
_KEYS = {name: key for key, metric in METRICS.items() for name in metric.names}


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values, by their keys joined by dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = flat(value) if isinstance(value, dict) else {"": value}
        found |= {f"{key}.{name}" if name else key: each for name, each in inner.items()}
    return found


def is_finite(number: float) -> bool:
    """Whether a number is finite, and JSON's readers elsewhere can hold it."""
    return -sys.float_info.max <= number <= sys.float_info.max


def final_metrics(
    evaluation: str,
    numbers: Mapping[str, Any],
    *,
    d_sae: int | None = None,  # where dead latents are counted, which then become a share
) -> dict[str, float]:
    """The finite numbers of an evaluation, by their keys here as far as they have any."""
    metrics = {}
    for name, value in flat(numbers).items():
        if type(value) in (int, float) and is_finite(value):
            key = _KEYS.get(f"{evaluation}/{name}") or _KEYS.get(name, name)
            metrics[key] = value / d_sae if key == "dead_latents" and d_sae else value
    return metrics


@dataclass(frozen=True)
class MetricTable:
    """A table of SAEs, with the metrics that any of them has."""

    metrics: list[Metric]
    rows: list[list[str]]  # the name of an SAE, and a cell for each metric

    @property
    def note(self) -> str:
        """The lines of the glossary on its metrics, each once."""
        lines: dict[str, str] = {}
        for metric in self.metrics:
            title = f"{metric.title[0].upper()}{metric.title[1:]}"
            lines.setdefault(metric.line, f"{title}: {metric.line}.")
        lines.pop("", None)
        return " ".join(lines.values())

    def in_terminal(self, *, width: int = 80, note: str | None = None) -> list[Table]:
        """Tables for `rich` to print, so many as the columns need in a terminal's width."""
        headings = [f"{m.heading or m.title}\n{m.arrow}".rstrip() for m in self.metrics]
        words = [number for number, metric in enumerate(self.metrics, 1) if not metric.shown]
        return terminal_tables(
            ["SAE", *headings], self.rows, width=width, text=(0, *words), note=note
        )

    def in_markdown(self, *, columns: int | None = None) -> str:
        """The table in Markdown; in several tables of so many `columns` at most, if given."""
        columns = columns or len(self.metrics) or 1
        parts = [
            markdown_table(
                ["SAE", *(metric.full_title for metric in self.metrics[at : at + columns])],
                [[row[0], *row[at + 1 : at + 1 + columns]] for row in self.rows],
            )
            for at in range(0, max(len(self.metrics), 1), columns)
        ]
        return "\n\n".join(parts)


def metric_table(
    saes: Sequence[tuple[str, Mapping[str, Any]]],
    among: Collection[str] = METRICS,
    *,
    blank: str = "",
) -> MetricTable:
    """The table of SAEs, by their names, of the metrics `among` which any of them has."""
    keys = [key for key in METRICS if key in among and any(key in each for _, each in saes)]
    rows = []
    for name, values in saes:
        shown = {key: format(values[key], METRICS[key].shown) for key in keys if key in values}
        rows.append([name, *(shown.get(key, blank) for key in keys)])
    return MetricTable([METRICS[key] for key in keys], rows)
