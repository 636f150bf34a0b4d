"""What a repository is to hold: the SAEs of an upload, and a card of all that it then has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.card.facts import Facts, read_facts
from sae_lens_c2r.hub.card.pictures import pictures
from sae_lens_c2r.hub.card.readme import Readme, merged
from sae_lens_c2r.hub.card.render import render
from sae_lens_c2r.hub.leaks import refuse_secrets
from sae_lens_c2r.hub.names import FACTS, FIGURES, README, refuse_nested
from sae_lens_c2r.hub.remote.difference import PlannedFile
from sae_lens_c2r.hub.remote.snapshot import Snapshot


@dataclass(frozen=True)
class Content:
    """An upload's SAEs, to be joined with what a repository has.

    Args:
        facts: What is known of the SAEs.
        pictures: Those of their card, by their names.
        saes: The SAEs' files; of none, there is only the card.
    """

    facts: Facts
    pictures: Mapping[str, bytes]
    saes: Sequence[PlannedFile] = ()

    def files(self, snapshot: Snapshot) -> list[PlannedFile]:
        """The SAEs' files, the card, its pictures, and what the card was made of."""
        known, existing = snapshot.read(FACTS), _text(snapshot.read(README))
        facts = self.facts if known is None else read_facts(known).joined(self.facts)
        refuse_nested(facts.saes)
        if existing:
            license = self._license(existing) or facts.license
            facts = facts.model_copy(update={"license": license})
        drawn = self.pictures if facts.saes == self.facts.saes else pictures(facts)
        figures = {name: f"{FIGURES}/{name}" for name in drawn}
        card = merged(existing, render(facts, pictures=figures))
        written = {README: card, FACTS: facts.to_json()}
        for name, content in written.items():
            refuse_secrets(name, content)
        return [
            *self.saes,
            *(PlannedFile.of(name, content.encode()) for name, content in written.items()),
            *(PlannedFile.of(figures[name], picture) for name, picture in drawn.items()),
        ]

    def _license(self, existing: str) -> str | None:
        """What the repository's `README.md` says, if it does."""
        said = Readme.read(existing).metadata.get("license")
        if not isinstance(said, str):
            return None
        if self.facts.license is not None and said != self.facts.license:
            raise UserError(
                f"`license` should be that of {README} in the repository, {said}, which "
                f"`--license {said}` confirms. Found {self.facts.license}."
            )
        return said


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{README} of the repository should be UTF-8. {error}") from None
