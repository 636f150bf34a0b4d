"""What the reports share: a look, and a way to render them."""

from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from sae_lens_c2r.reporting.figures import COLORS


def render(package: str, **values: Any) -> str:
    """Render the `report.html` of a package. What comes of it loads nothing from anywhere.

    Args:
        package: The package that the template lies in.
        values: What the template asks for.

    Returns:
        An HTML document.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    source = files(package).joinpath("report.html").read_text(encoding="utf-8")
    style = files("sae_lens_c2r.reporting").joinpath("report.css").read_text(encoding="utf-8")
    return environment.from_string(source).render(style=style, colors=COLORS, **values)
