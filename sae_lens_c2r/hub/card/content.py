"""What a repository is to hold: the SAEs of an upload, and a card of all that it then has."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.card.facts import FACTS, Facts, read_facts
from sae_lens_c2r.hub.card.pictures import pictures
from sae_lens_c2r.hub.card.readme import Readme, merged
from sae_lens_c2r.hub.card.render import render
from sae_lens_c2r.hub.local.leaks import refuse_secrets
from sae_lens_c2r.hub.names import refuse_nested
from sae_lens_c2r.hub.remote.plan import PlannedFile, Read

README, FIGURES = "README.md", "figures"


@dataclass(frozen=True)
class Content:
    """An upload's SAEs, to be joined with what a repository has.

    Args:
        facts: What is known of the SAEs.
        files: Their files.
    """

    facts: Facts
    files: Sequence[PlannedFile] = ()

    def joined_with(self, read: Read) -> list[PlannedFile]:
        """The files that the repository is to hold.

        Args:
            read: Reads what it holds.

        Returns:
            The SAEs' files, the card, its pictures, and what the card was made of.

        Raises:
            UserError: If what it holds cannot be joined with, or a file would hold a secret.
        """
        known = read(FACTS)
        facts = self.facts
        if known is not None:
            facts = read_facts(known, name=FACTS).joined(facts)
        facts = read_facts(facts.to_json(), name=FACTS)  # as a later upload will read them
        refuse_nested(facts.saes)
        existing = _text(read(README))
        license = self._license(existing) or facts.license
        facts = facts.model_copy(update={"license": license})
        drawn = _pictures(facts.to_json())
        card = render(facts, pictures={name: f"{FIGURES}/{name}" for name in drawn})
        written = {README: merged(existing, card), FACTS: facts.to_json()}
        for name, content in written.items():
            refuse_secrets(name, content)
        return [
            *self.files,
            *(PlannedFile.of(name, content.encode()) for name, content in written.items()),
            *(PlannedFile.of(f"{FIGURES}/{name}", drawn[name]) for name in drawn),
        ]

    def _license(self, existing: str | None) -> str | None:
        """What the repository's `README.md` says, if it does."""
        said = Readme.read(existing).metadata.get("license") if existing else None
        if not isinstance(said, str):
            return None
        if self.facts.license is not None and said != self.facts.license:
            raise UserError(
                f"`license` should be that of {README} in the repository, {said}, which "
                f"`--license {said}` confirms. Found {self.facts.license}."
            )
        return said


@lru_cache(maxsize=1)
def _pictures(facts: str) -> dict[str, bytes]:
    """The pictures, drawn once for all the looks that an upload takes at a repository."""
    return pictures(read_facts(facts, name=FACTS))


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{README} of the repository should be UTF-8. {error}") from None
