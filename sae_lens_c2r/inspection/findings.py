"""Looking at SAEs, one after the other; one that cannot be loaded does not stop the others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sae_lens import SAE, TrainingSAE

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.inspection.behavior import Behavior, observe
from sae_lens_c2r.inspection.latents import LatentOnText, check_latents, latents_on_text
from sae_lens_c2r.inspection.measures import Inspection, inspect_sae
from sae_lens_c2r.inspection.reader import TextReader
from sae_lens_c2r.saes.sae_ref import SAERef


@dataclass(frozen=True)
class Finding:
    """What was found of an SAE: of its weights and, if there is a text, on that.

    Args:
        inspection: What its weights say.
        behavior: What it does on the text.
        text: What the text is called.
        model: The model that read it.
        latents: What single latents do there.
    """

    inspection: Inspection
    behavior: Behavior | None = None
    text: str | None = None
    model: str | None = None
    latents: list[LatentOnText] = field(default_factory=list)


def inspect(
    sources: Sequence[SAERef],
    *,
    device: str,
    on_error: Callable[[str], None],
    reader: TextReader | None = None,
    latents: Sequence[int] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> list[Finding]:
    """Measure SAEs.

    Args:
        sources: Which.
        device: Where.
        on_error: Told, in one line, of each that cannot be measured, and of each that only
            its weights can be measured of.
        reader: Runs their models over a text; `None` for their weights alone.
        latents: Which to look at one by one, on the text.
        tell: Told of each that is begun.

    Returns:
        What was found.
    """
    found = []
    for number, source in enumerate(sources, start=1):
        tell(f"{number} of {len(sources)}: {source.name}")
        try:
            sae = source.load(device)
            if reader is not None:
                _check_asked(sae, source.name, reader, latents)
            inspection = inspect_sae(sae, source.name)
        except UserError as error:
            on_error(str(error))
            continue
        finding = Finding(inspection)
        if reader is not None:
            try:
                finding = _on_text(finding, sae, reader, latents)
            except UserError as error:
                on_error(str(error))
        found.append(finding)
    return found


def _check_asked(
    sae: SAE[Any] | TrainingSAE[Any], name: str, reader: TextReader, latents: Sequence[int]
) -> None:
    """Raise, before anything is measured, unless an SAE has the latents, and a model."""
    try:
        check_latents(latents, sae.cfg.d_sae)
        reader.name_of_model(sae)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None


def _on_text(
    finding: Finding,
    sae: SAE[Any] | TrainingSAE[Any],
    reader: TextReader,
    latents: Sequence[int],
) -> Finding:
    text = reader.activations(sae, finding.inspection.name)
    tokenizer = reader.model_of(sae).tokenizer
    return Finding(
        finding.inspection,
        observe(sae, text, tokenizer),
        text=reader.named,
        model=reader.name_of_model(sae),
        latents=latents_on_text(sae, text, tokenizer, latents) if latents else [],
    )
