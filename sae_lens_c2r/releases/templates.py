"""A release to begin with: a small YAML file, with a comment on what to change."""

import re
from pathlib import Path
from string import Template

from sae_lens_c2r._support.errors import UserError, first_sentence
from sae_lens_c2r.offline.minilm import OFFLINE_MODEL
from sae_lens_c2r.releases.model import NAME_PATTERN, ReleaseError

# As TransformerLens has them, without the owner that they have on the Hub by now.
_OWNERS = {"gpt2": "openai-community", "distilgpt2": "distilbert"}
_FOLDER = Path(__file__).parent


def check_new_name(name: str) -> None:
    """Raise a `ReleaseError` unless a release may have a name."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise ReleaseError(
            "`NAME` should be of small letters and digits, with `-` or `.` between them, like "
            f"my-first-release. Found {name!r}."
        )


def new_release(name: str, model: str | None) -> str:
    """Write a release in YAML."""
    if model is None:
        return _filled("minilm.yaml", name=name, hub_id=OFFLINE_MODEL)
    from sae_lens_c2r.releases.language_models import official_name, pretrained_config

    official = official_name(model)
    if official is None:
        raise UserError(f"`--model` should be one that TransformerLens has. Found {model!r}.")
    try:
        config = pretrained_config(model)
    except OSError as error:
        raise UserError(
            f"The network did not give the config of {model}, which has the size of its "
            f"activations. {first_sentence(error)}"
        ) from None
    owner = _OWNERS.get(official.partition("-")[0], "ORG")
    return _filled(
        "transformer_lens.yaml",
        name=name,
        hub_id=official if "/" in official else f"{owner}/{official}",
        model=model,
        hook_name=f"blocks.{config.n_layers // 2}.hook_resid_post",
        context_size=min(1024, config.n_ctx),
        n_tokens=config.n_ctx,
        d_in=config.d_model,
    )


def _filled(template: str, **values: object) -> str:
    text = (_FOLDER / template).read_text(encoding="utf-8")
    return Template(text).substitute(values)
