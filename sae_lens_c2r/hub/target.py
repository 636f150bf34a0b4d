"""Where an upload goes."""

from dataclasses import dataclass

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.names import MAIN, check_reference, check_repo_id


@dataclass(frozen=True)
class Target:
    """Where an upload goes.

    Args:
        repo_id: The repository, ``org/name``.
        revision: The branch, made if there is none.
        tag: A tag for the commit, set when all has been verified.
        create_pr: Whether to propose the commit instead of making it.
        public: Whether a repository that is made is public.

    Raises:
        UserError: If a name is not fit for the Hub.
    """

    repo_id: str
    revision: str = MAIN
    tag: str | None = None
    create_pr: bool = False
    public: bool = False

    def __post_init__(self) -> None:
        check_repo_id(self.repo_id)
        check_reference("revision", self.revision)
        if self.tag is not None:
            check_reference("tag", self.tag)
        if self.tag and self.create_pr:
            raise UserError("`tag` should be left out with `create-pr`: nothing is merged yet.")

    @property
    def on_main(self) -> bool:
        """Whether the commit is what `SAE.from_pretrained` then loads."""
        return self.revision == MAIN and not self.create_pr
