"""Arguments and options that several commands share, and how help shows them."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

DeviceOption = Annotated[
    str | None, typer.Option(help="Torch device.", show_default="cuda if there is one")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace what an earlier run has written.")
]
ModelOption = Annotated[
    str | None,
    typer.Option(help="The language model.", show_default="what the SAE's config names"),
]
AnySAEsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="SAE...",
        help="A folder of one SAE or of many, or a release followed by an SAE's id.",
    ),
]
ReleaseArgument = Annotated[
    str, typer.Argument(help="A release of ours, such as minilm-layer-3, or a YAML file.")
]
ReleaseOption = Annotated[
    str | None,
    typer.Option(
        "--release", help="The release of the SAEs.", show_default="what training recorded"
    ),
]
EvaluationOption = Annotated[
    Path | None,
    typer.Option(
        help="What `evaluate` has measured.",
        show_default="evaluation/evaluation.json, here or beside the folders",
    ),
]
BaseModelOption = Annotated[
    str | None,
    typer.Option(
        help="The language model on the Hub, ORG/NAME: for SAEs that were trained from a "
        "folder of it.",
        show_default="what training recorded",
    ),
]
LicenseOption = Annotated[
    str | None,
    typer.Option(help="Licence of the weights, like mit.", show_default="the release's"),
]


def usable_device(device: str | None) -> str:
    """The device that is meant: where it is not said, `cuda` if there is one."""
    import torch

    return device or ("cuda" if torch.cuda.is_available() else "cpu")


class Command(TyperCommand):
    """A command whose help does not say of a flag that it is a `<bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; flags have no type to show."""
        return _without_type(super().get_params(ctx))


class Group(TyperGroup):
    """A command that has commands, with such help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; flags have no type to show."""
        return _without_type(super().get_params(ctx))


def _without_type(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False) and param.metavar is None:
            param.metavar = ""
    return params
