"""What the reports share: a look, parts, and a way to render them."""

from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from sae_lens_c2r.reporting.figures import COLORS


def render(template: str, **values: Any) -> str:
    """Render a template that extends `reporting/base.html`: it loads nothing from anywhere."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        loader=FunctionLoader(_read),
    )
    style = _read("reporting/report.css")
    return environment.get_template(template).render(style=style, colors=COLORS, **values)


def _read(name: str) -> str:
    return files("sae_lens_c2r").joinpath(name).read_text(encoding="utf-8")
