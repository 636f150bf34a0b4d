"""How the numbers of a card were measured, and how its SAEs were trained, in sentences."""

from collections import defaultdict
from collections.abc import Iterator

from jinja2 import Environment, FileSystemLoader

from sae_lens_c2r._support.errors import counted
from sae_lens_c2r._support.files import data_folder
from sae_lens_c2r.analysis.cofiring import JACCARDS
from sae_lens_c2r.hub.facts import RepoFacts
from sae_lens_c2r.hub.tables import PENALTIES, card_numbers, code, text
from sae_lens_c2r.inspection.measures import THRESHOLDS

CARDS = data_folder("hub_cards")
SENTENCES = "sentences.jinja"


def how_measured(facts: RepoFacts) -> Iterator[str]:
    """Yield how each evaluation was made, a paragraph for the SAEs that share it."""
    # The keys of the inner mappings are sets in the order in which they were filled.
    found: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    titles: dict[str, dict[str, None]] = defaultdict(dict)
    for number in card_numbers(facts):
        name = number.column.evaluation
        found[name, _say("measured", name, number.evaluation)][number.sae_id] = None
        titles[name][number.column.title] = None
    for (name, said), sae_ids in sorted(found.items()):
        alone = sum(other == name for other, _ in found) == 1
        whose = "" if alone else f" ({', '.join(f'`{sae_id}`' for sae_id in sae_ids)})"
        yield f"**{', '.join(titles[name])}**{whose}: {said}"


def how_trained(facts: RepoFacts) -> Iterator[str]:
    """Yield how the SAEs were trained, a paragraph for those that share it."""
    found: dict[str, list[str]] = {}
    for sae_id, sae in facts.saes.items():
        found.setdefault(_say("trained", sae.training), []).append(sae_id)
    for said, sae_ids in found.items():
        whose = "" if len(found) == 1 else f"{', '.join(f'`{i}`' for i in sae_ids)}: "
        yield whose + said
    for name, prefix in PENALTIES.items():
        came_to = {
            sae_id: sae.training.effective_coefficients[prefix]
            for sae_id, sae in facts.saes.items()
            if prefix in sae.training.effective_coefficients
        }
        if came_to:
            yield _say("coefficient", name, came_to)


def _say(sentence: str, *values: object) -> str:
    """Write one of the sentences."""
    said = getattr(_SENTENCES, sentence)(*values)
    return " ".join(said.split())


def _duration(seconds: float) -> str:
    if seconds >= 90 * 60:
        return f"{seconds / 3600:.1f} hours"
    if seconds >= 60:
        return counted(seconds / 60, "minute")
    return counted(max(1, seconds), "second")


_LANGUAGE = Environment(loader=FileSystemLoader(CARDS))
_LANGUAGE.filters.update(text=text, code=code, duration=_duration)
_LANGUAGE.globals.update(cosines=THRESHOLDS, jaccards=JACCARDS)
_SENTENCES = _LANGUAGE.get_template(SENTENCES).module
