"""What the Hub calls the models and texts that SAEs are of."""

from collections.abc import Callable, Iterable
from typing import Any

from huggingface_hub import HfApi, ModelInfo
from huggingface_hub.errors import HFValidationError, HTTPError  # type: ignore[attr-defined]

from sae_lens_c2r.hub.remote.refusals import FORBIDDEN, status_of

_NOT_HERE = {401, FORBIDDEN, 404}


def known_models(api: HfApi, names: Iterable[str], tell: Callable[[str], None]) -> list[str]:
    """The ids of those models that the Hub has for everybody, gated or not."""
    models = set()
    for model in filter(None, (_known_model(api, name) for name in sorted(set(names)))):
        if model.private:
            tell(f"{model.id} is private: the card's metadata do not name it, its text does.")
        else:
            models.add(model.id)
        if model.gated:
            tell(f"{model.id} is gated: who uses its SAEs has to accept its terms on the Hub.")
    return sorted(models)


def known_datasets(api: HfApi, names: Iterable[str]) -> list[str]:
    """The ids of those texts that the Hub has for everybody."""
    named = [name for name in sorted(set(names)) if "/" in name]
    found = (_found(api.dataset_info, name) for name in named)
    return [dataset.id for dataset in found if dataset and not dataset.private]


def _known_model(api: HfApi, name: str) -> ModelInfo | None:
    from sae_lens_c2r.releases.language_models import official_name

    for each in dict.fromkeys([official_name(name) or name, name]):
        if found := _found(api.model_info, each):
            return found if "/" in found.id else None
    return None


def _found(ask: Callable[[str], Any], name: str) -> Any:
    """What the Hub says; `None` if it does not have it, or not for this token."""
    try:
        return ask(name)
    except HFValidationError:
        return None
    except HTTPError as error:
        if status_of(error) in _NOT_HERE:
            return None
        raise
