"""A card: `README.md` of a repository, rendered of what is known of its SAEs."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from huggingface_hub.repocard_data import eval_results_to_model_index

from sae_lens_c2r._support.data import data_folder
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.catalog import (
    HELD_OUT,
    KNOWN_FEATURES,
    SAE_LENS,
    TRAINING,
    WEIGHTS,
)
from sae_lens_c2r.hub.card.facts import Facts
from sae_lens_c2r.hub.card.provenance import (
    effective_coefficients,
    how_measured,
    how_trained,
)
from sae_lens_c2r.hub.card.readme import BEGIN, END, TASK, set_metadata
from sae_lens_c2r.hub.card.tables import (
    PENALTIES,
    CardNumber,
    card_numbers,
    code,
    measurement_table,
    planned_table,
    printable,
    sae_table,
)
from sae_lens_c2r.hub.names import FACTS
from sae_lens_c2r.releases.model import LanguageModel, Release

CARDS = data_folder("hub_cards")
_DATA = {KNOWN_FEATURES: "known features", HELD_OUT: "held-out text", TRAINING: "training text"}
_TAGS = ("sparse-autoencoder", "sae", "interpretability")
TEMPLATE = "card.md.jinja"
PAPER = "2606.30609"  # on arXiv
AUTHORS_CODE = "https://github.com/hr-jin/Cross-sample-Consistency-Regularization"


def render(facts: Facts, *, pictures: Mapping[str, str] | None = None) -> str:
    """Render the card of SAEs."""
    saes = facts.saes.items()
    with_c2r = (sae_id for sae_id, sae in saes if "c2r_coefficient" in sae.options)
    example = next(with_c2r, next(iter(facts.saes)))
    first = facts.saes[example]
    card = _card(
        ModelCardData(
            library_name="saelens",
            license=facts.license,
            base_model=_one_or_all(facts.base_models),
            datasets=facts.datasets or None,
            tags=[*_TAGS, *(["c2r"] if "C2R" in _penalties(facts) else [])],
        ),
        facts.repo_id,
        description=printable(facts.description or ""),
        planned=False,
        example=example,
        hook_name=code(first.training.hook_name or ""),
        model=code(first.training.model_name or first.training.model or ""),
        model_class=code(first.training.model_class or "HookedTransformer"),
        d_in=first.d_in,
        d_sae=first.d_sae,
        saes=sae_table(facts),
        penalties=_penalties(facts),
        measurements=measurement_table(facts),
        how=_bullets(how_measured(facts)),
        pictures=pictures or {},
        training=_bullets([*how_trained(facts), *effective_coefficients(facts)]),
        license=facts.license,
        base_models=facts.base_models,
    )
    return _with_model_index(card, facts)


def render_planned(release: Release) -> str:
    """The card of a release that is not trained yet: it says so, and has no numbers."""
    if release.repo_id is None:
        raise UserError(f"{release.name} should have a `repo_id` to have a card.")
    if release.status != "planned":
        raise UserError(
            f"{release.name}: `status` should be planned for a card without SAEs. That of SAEs "
            f"is rendered by `sae-lens-c2r card DIR`. Found `status = {release.status}`."
        )
    source = release.source
    lines = [f"{release.name}, to be trained by `sae-lens-c2r train {release.name}`."]
    base_model = None
    if isinstance(source, LanguageModel):
        base_model = source.hub_id
        lines.append(
            f"Activations of {source.hub_id} at `{source.hook_name}`, on {source.dataset} in "
            f"rows of {source.context_size:,} tokens, {source.training_tokens:,} tokens in all."
        )
    else:
        lines.append(f"{source.training_samples:,} samples of known features.")
    return _card(
        ModelCardData(
            library_name="saelens",
            license=release.license,
            base_model=base_model,
            tags=[*_TAGS, "c2r"],
        ),
        release.repo_id,
        description=release.description,
        planned=True,
        saes=planned_table(release),
        training=_bullets(lines),
        license=release.license,
        base_models=[base_model] if base_model else [],
    )


def _card(data: ModelCardData, repo_id: str, **values: Any) -> str:
    citation = (CARDS / "citations.bib").read_text(encoding="utf-8").strip()
    card = ModelCard.from_template(
        data,
        template_path=str(CARDS / TEMPLATE),
        title=repo_id.rpartition("/")[2],
        repo_id=repo_id,
        begin=BEGIN,
        end=END,
        citation=citation,
        paper=PAPER,
        authors_code=AUTHORS_CODE,
        facts_file=FACTS,
        **values,
    )
    rendered = str(card).replace("\r\n", "\n")
    if rendered.count("<!-- sae-lens-c2r:") != 2:
        raise UserError("A card should have our marks once. What it says has such a mark, too.")
    return re.sub(r"\n{3,}", "\n\n", rendered).rstrip() + "\n"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _one_or_all(names: list[str]) -> str | list[str] | None:
    return names[0] if len(names) == 1 else names or None


def _penalties(facts: Facts) -> list[str]:
    """The penalties that any of the SAEs was trained with."""
    options = {option for sae in facts.saes.values() for option in sae.options}
    return [name for name, prefix in PENALTIES.items() if f"{prefix}_coefficient" in options]


def _with_model_index(card: str, facts: Facts) -> str:
    results: dict[str, list[EvalResult]] = {}
    for each in card_numbers(facts):
        name = _dataset(each)
        result = EvalResult(
            task_type="feature-extraction",
            task_name=TASK,
            dataset_type=re.sub(r"[^\w./-]+", "-", name),
            dataset_name=name,
            metric_type=re.sub(r"[^a-z0-9]+", "_", each.column.title.lower()).strip("_"),
            metric_name=each.column.title,
            metric_value=each.value,
        )
        results.setdefault(each.sae_id, []).append(result)
    if not results:
        return card
    index = [eval_results_to_model_index(sae_id, of)[0] for sae_id, of in results.items()]
    return set_metadata(card, {"model-index": index})


def _dataset(number: CardNumber) -> str:
    if number.column.evaluation == WEIGHTS:
        return "weights"
    if number.column.evaluation == SAE_LENS:
        return number.evaluation.text or "training text"
    if number.column.evaluation in _DATA:
        return _DATA[number.column.evaluation]
    return f"SAEBench {number.column.evaluation}"
