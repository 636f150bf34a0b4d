"""Arguments and options that several commands share, and how help shows them."""

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
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A value to change, like sae.k=50; may be repeated."),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Continue from the last checkpoint, if any.")
]
CheckpointMinutesOption = Annotated[
    float, typer.Option(min=0, help="Minutes between checkpoints; 0 for none.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
]


def usable_device(device: str | None) -> str:
    """The device that is meant, `cuda` if there is one; a UserError if torch lacks it."""
    import torch

    from sae_lens_c2r._support.checks import check_torch_device

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    check_torch_device(device)
    return device


class _FlagsWithoutType:
    """Help that does not say of a flag that it is a `<bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; flags have no type to show."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for param in params:
            if getattr(param, "is_flag", False) and param.metavar is None:
                param.metavar = ""
        return params


class Command(_FlagsWithoutType, TyperCommand):
    """A command with such help."""


class Group(_FlagsWithoutType, TyperGroup):
    """A command that has commands, with such help."""
