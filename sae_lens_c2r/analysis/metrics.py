"""The metrics of SAEs: their titles, units, formats and glossary."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Metric:
    """A number of an SAE, as every table shows it."""

    title: str
    heading: str = ""  # the title in a few letters, for a terminal
    better: int = 0  # 1 for more, -1 for less, and 0 for neither
    shown: str = ".3f"  # the format of its numbers
    line: str = ""  # of the glossary
    names: Sequence[str] = ()  # in others' results and in earlier files

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


def is_finite(number: int | float) -> bool:
    """Whether a number is finite, and JSON's readers elsewhere can hold it."""
    return -sys.float_info.max <= number <= sys.float_info.max


def final_metrics(evaluation: str, numbers: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of an evaluation, by their keys here as far as they have any."""
    metrics = {}
    for name, value in flat(numbers).items():
        if type(value) in (int, float) and is_finite(value):
            key = _KEYS.get(f"{evaluation}/{name}") or _KEYS.get(name, name)
            metrics[key] = value
    return metrics
