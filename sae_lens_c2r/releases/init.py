"""The SAE that another one starts from: the key `init` of an SAE of a release."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError, model_validator

from sae_lens_c2r._support.reading import first_problem
from sae_lens_c2r.releases.model import ReleaseError, SAESpec

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Init(BaseModel):
    """An SAE that exists.

    Args:
        release: One of SAELens's releases, with an `sae_id`; or
        repo: a repository on the Hub, with an `sae_id`; or
        folder: a folder of this machine.
        sae_id: The SAE's id in a release or a repository.
        revision: Branch, tag or commit of the repository.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    release: _Text | None = None
    repo: _Text | None = None
    folder: _Text | None = None
    sae_id: _Text | None = None
    revision: _Text | None = None

    @model_validator(mode="after")
    def _is_one_place(self) -> "Init":
        if sum(place is not None for place in (self.release, self.repo, self.folder)) != 1:
            raise ValueError("one of `release`, `repo` and `folder` should be given")
        if (self.sae_id is None) != (self.folder is not None):
            raise ValueError("`sae_id` should go with `release` or `repo`, not with `folder`")
        if self.folder is not None and self.revision is not None:
            raise ValueError("`revision` should go with `release` or `repo`")
        return self


def init_of(spec: SAESpec) -> Init | None:
    """What an SAE of a release starts from; a ReleaseError if its `init` is not such."""
    said: Any = spec.fields.get("init")
    if said is None:
        return None
    try:
        return Init.model_validate(said)
    except ValidationError as error:
        reason = first_problem(error).removeprefix("``: ")
        raise ReleaseError(
            f"`sae.init` of {spec.sae_id} should name one SAE. {reason}"
        ) from None
