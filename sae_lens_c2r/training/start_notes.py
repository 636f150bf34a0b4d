"""What is worth knowing of what SAEs start from, before hours of training."""

from collections.abc import Iterator
from typing import Any

from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.saes.origin import Origin, allows_derivatives
from sae_lens_c2r.training.plan import Plan


def notes_on_starts(plan: Plan) -> Iterator[str]:
    """A line for each SAE that starts from another, and one for whatever may surprise."""
    for sae_id, start in plan.starts.items():
        origin = start.origin
        license = origin.license or "a licence that is not known"
        yield f"{sae_id} starts from {origin.source.name}, under {license}."
        if not allows_derivatives(origin.license):
            yield (
                f"Warning: {origin.license} does not allow to publish what is made of it. "
                "`upload` will ask for `--license`."
            )
        for name, own, now in _other_inputs(plan, origin, start.config.dtype):
            yield f"Warning: `{name}` is {now}, and was {own} when it was trained."
        for name in start.defaults:
            value = getattr(start.config, name)
            yield f"Warning: it does not say its `{name}`. It is {value}, SAELens's default."


def _other_inputs(plan: Plan, origin: Origin, dtype: str) -> Iterator[tuple[str, Any, Any]]:
    """What differs from what the SAE was trained on: a name, and both values."""
    if origin.dtype != dtype:
        yield "dtype", origin.dtype, dtype
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        return
    for name, now in (
        ("context_size", source.context_size),
        ("prepend_bos", plan.runner_value("prepend_bos")),
    ):
        own = origin.metadata.get(name)
        if own is not None and own != now:
            yield name, own, now
