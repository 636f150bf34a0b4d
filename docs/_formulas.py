"""Formulas of docstrings, as Sphinx writes them, for a site of Markdown."""

import re
from typing import Any

import griffe

_INLINE = re.compile(r":math:`([^`]*)`")
_BLOCK = re.compile(r"^\.\. math::[ ]*(.*(?:\n[ ]+\S.*)*)$", re.MULTILINE)


class Formulas(griffe.Extension):
    """Has every docstring's formulas between dollars."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object that has been read."""
        if obj.docstring is not None:
            text = _BLOCK.sub(r"$$\n\1\n$$", obj.docstring.value)
            obj.docstring.value = _INLINE.sub(r"$\1$", text)
