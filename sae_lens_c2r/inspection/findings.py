"""Looking at SAEs, one after the other; one that cannot be loaded does not stop the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.inspection.behavior import Behavior, observe
from sae_lens_c2r.inspection.measures import Inspection, inspect_sae
from sae_lens_c2r.inspection.reader import TextReader
from sae_lens_c2r.saes.sources import Source


@dataclass(frozen=True)
class Finding:
    """What was found of an SAE: of its weights and, if there is a text, on that."""

    inspection: Inspection
    behavior: Behavior | None = None


def inspect(
    sources: Sequence[Source],
    *,
    device: str,
    on_error: Callable[[str], None],
    reader: TextReader | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Measure SAEs.

    Args:
        sources: Which.
        device: Where.
        on_error: Told, in one line, of each that cannot be measured, and of each that only
            its weights can be measured of.
        reader: Runs their models over a text; `None` for their weights alone.
        tell: Told of each that is begun.

    Returns:
        What was found.
    """
    found = []
    for number, source in enumerate(sources, start=1):
        tell(f"{number} of {len(sources)}: {source.name}")
        try:
            sae = source.load(device)
            inspection = inspect_sae(sae, source.name)
        except UserError as error:
            on_error(str(error))
            continue
        behavior = None
        if reader is not None:
            try:
                text = reader.activations(sae, source.name)
                behavior = observe(sae, text, reader.model_of(sae).tokenizer)
            except UserError as error:
                on_error(str(error))
        found.append(Finding(inspection, behavior))
    return found
