"""Looking at SAEs, one after the other; one that cannot be loaded does not stop the others."""

from collections.abc import Callable, Sequence
from pathlib import Path

from sae_lens_c2r.inspection.measures import Inspection, inspect_sae
from sae_lens_c2r.inspection.sources import InspectionError, Source


def inspect(
    sources: Sequence[Source], *, device: str, on_error: Callable[[str], None]
) -> list[Inspection]:
    """Measure SAEs.

    Args:
        sources: Which.
        device: Where.
        on_error: Told, in one line, of each that cannot be measured.

    Returns:
        What was found of the others.
    """
    found = []
    for source in sources:
        try:
            found.append(inspect_sae(source.load(device), source.name))
        except InspectionError as error:
            on_error(str(error))
        except ValueError as error:
            on_error(f"{source.name}: {error}")
    return found


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raise where a file is to be written that exists.

    Args:
        path: The file.
        overwrite: Whether it may.

    Raises:
        InspectionError: If it exists and may not.
    """
    if path.exists() and not overwrite:
        raise InspectionError(
            f"`out` should not exist, or `--overwrite` be given. Found {path}."
        )
