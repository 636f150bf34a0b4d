"""Commands whose help does not say of a flag that it is a `<bool>`."""

from typing import Any

from typer.core import TyperCommand, TyperGroup


def _without_type(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params


class Command(TyperCommand):
    """A command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, of which flags have no type to show."""
        return _without_type(super().get_params(ctx))


class Group(TyperGroup):
    """A command that has commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its parameters, of which flags have no type to show."""
        return _without_type(super().get_params(ctx))
