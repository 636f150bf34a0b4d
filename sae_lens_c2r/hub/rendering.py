"""The text, metadata and pictures of a card. Every number is of an evaluation, by its key."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from huggingface_hub import CardData, EvalResult
from huggingface_hub.repocard_data import eval_results_to_model_index
from jinja2 import Environment, FileSystemLoader

from sae_lens_c2r._support.errors import UserError, counted
from sae_lens_c2r._support.files import data_folder
from sae_lens_c2r.analysis.cofiring import JACCARDS
from sae_lens_c2r.evaluation.catalog import (
    ABSORPTION_ADVICE,
    CO_FIRING,
    COLUMNS,
    HELD_OUT,
    KNOWN_FEATURES,
    RECOVERED,
    SAE_LENS,
    TRAINING,
    WEIGHTS,
    Column,
)
from sae_lens_c2r.evaluation.report import Evaluation, max_cosine_counts
from sae_lens_c2r.hub.facts import RepoFacts
from sae_lens_c2r.inspection.measures import THRESHOLDS
from sae_lens_c2r.releases.model import FIGURES
from sae_lens_c2r.reporting.figures import Distribution, color_of, max_cosine_figure, png

CARDS = data_folder("hub_cards")
TEMPLATE, SENTENCES = "card.md.jinja", "sentences.jinja"
BEGIN = "<!-- sae-lens-c2r:begin. What follows is rewritten by every upload. -->"
END = "<!-- sae-lens-c2r:end. What follows is yours, and so is what stands above. -->"
INDEX, TASK = "model-index", "sparse autoencoder"  # and what our results in it are of
_CHANCE = "chance_composition"
_PAPER = "2606.30609"  # on arXiv
_PENALTIES = {"C2R": "c2r_coefficient", "OrtSAE": "ort_coefficient"}
_COUNT, _PAIRS = ",.0f", f"{CO_FIRING}.pairs_above"
_CARD_COLUMNS = (
    Column("explained variance", "", HELD_OUT, "explained_variance", 1),
    Column("L0", "", HELD_OUT, "l0", 0, ".1f"),
    Column("dead latents", "", HELD_OUT, "dead_latents", -1, _COUNT),
    Column("co-firing", "", HELD_OUT, f"{CO_FIRING}.highest_jaccard", -1),
    # The chance level of composition stands where it is said how that was measured.
    *(column for column in COLUMNS if column.metric != _CHANCE),
    Column("loss recovered", "", SAE_LENS, RECOVERED, 1),
    Column("pairs > 0.9", "", WEIGHTS, "pairs_above_0.9", -1, _COUNT),
    Column("pairs > 0.7", "", WEIGHTS, "pairs_above_0.7", -1, _COUNT),
    Column("co-firing by chance", "", SAE_LENS, f"{CO_FIRING}.chance", 0),
    *(
        Column(f"co-firing pairs > {above}", "", SAE_LENS, f"{_PAIRS}_{above}", -1, _COUNT)
        for above in JACCARDS
    ),
    Column("dead latents", "", TRAINING, "dead_latents", -1, _COUNT),
)
_NAMES = {  # of what is not SAEBench's
    WEIGHTS: "Weights",
    KNOWN_FEATURES: "Known features",
    HELD_OUT: "Held-out text",
    TRAINING: "End of training",
    SAE_LENS: "SAELens",
}
# A number of a card: the SAE's id, its column, and the evaluation that has it.
_Number = tuple[str, Column, Evaluation]


def render(facts: RepoFacts, figures: Iterable[str] = ()) -> str:
    """Render the card of SAEs, with pictures by their paths."""
    saes, models = facts.saes, facts.base_models
    options = {option for sae in saes.values() for option in sae.options}
    penalties = {name: option for name, option in _PENALTIES.items() if option in options}
    with_c2r = (sae_id for sae_id, sae in saes.items() if _PENALTIES["C2R"] in sae.options)
    example = next(with_c2r, next(iter(saes)))
    numbers = [
        (sae_id, column, evaluation)
        for sae_id, sae in saes.items()
        for column in _CARD_COLUMNS
        if (evaluation := sae.evaluations.get(column.evaluation))
        and column.metric in evaluation.metrics
    ]
    cells = {(i, of): format(each.metrics[of.metric], of.shown) for i, of, each in numbers}
    data = CardData(
        base_model=models[0] if len(models) == 1 else models or None,
        datasets=facts.datasets or None,
        library_name="saelens",
        license=facts.license,
        tags=["sparse-autoencoder", "sae", "interpretability", *["c2r"] * ("C2R" in penalties)],
        **{INDEX: _model_index(numbers) or None},  # type: ignore[arg-type]
    )
    card = _LANGUAGE.get_template(TEMPLATE).render(
        card_data=data.to_yaml(),
        facts=facts,
        example=example,
        first=saes[example],
        penalties=penalties,
        cells=cells,
        measured=_measured(numbers),
        co_firing=any(column.title == "co-firing" for _, column, _ in numbers),
        trained=_how_trained(facts),
        figures=figures,
        begin=BEGIN,
        end=END,
        paper=_PAPER,
        citation=(CARDS / "citations.bib").read_text(encoding="utf-8").strip(),
    )
    card = card.replace("\r\n", "\n")
    if card.count("<!-- sae-lens-c2r:") != 2:
        raise UserError("A card should have our marks once. Found another mark in its text.")
    return re.sub(r"\n{3,}", "\n\n", card).rstrip() + "\n"


def _model_index(numbers: Sequence[_Number]) -> list[dict[str, Any]]:
    results: dict[str, list[EvalResult]] = defaultdict(list)
    for sae_id, column, evaluation in numbers:
        data = _name(column.evaluation)
        if column.evaluation == SAE_LENS:
            data = evaluation.text or "training text"
        result = EvalResult(
            task_type="feature-extraction",
            task_name=TASK,
            dataset_type=re.sub(r"[^\w./-]+", "-", data),
            dataset_name=data,
            metric_type=re.sub(r"[^a-z0-9]+", "_", column.title.lower()).strip("_"),
            metric_name=column.title,
            metric_value=evaluation.metrics[column.metric],
        )
        results[sae_id].append(result)
    return [eval_results_to_model_index(sae_id, of)[0] for sae_id, of in results.items()]


def _name(evaluation: str) -> str:
    return _NAMES.get(evaluation, f"SAEBench {evaluation}")


# Sentences


def _measured(numbers: Sequence[_Number]) -> Iterator[tuple[str, list[Column], list[str]]]:
    """Yield each evaluation's name, its columns, and a paragraph for the SAEs that share it."""
    for name in dict.fromkeys(column.evaluation for column in _CARD_COLUMNS):
        of = [number for number in numbers if number[1].evaluation == name]
        said = ((sae_id, _say("measured", name, evaluation)) for sae_id, _, evaluation in of)
        if of:
            columns = sorted({column for _, column, _ in of}, key=_CARD_COLUMNS.index)
            yield _name(name), columns, _each_once(said)


def _how_trained(facts: RepoFacts) -> Iterator[str]:
    """Yield how the SAEs were trained, a paragraph for those that share it."""
    said = ((sae_id, _say("trained", sae.training)) for sae_id, sae in facts.saes.items())
    yield from _each_once(said)
    for name, option in _PENALTIES.items():
        if coefficients := _say("coefficients", name, option.partition("_")[0], facts.saes):
            yield coefficients


def _each_once(said: Iterable[tuple[str, str]]) -> list[str]:
    """Return each sentence once, after its SAEs if there are several sentences."""
    # The keys of the inner mappings are sets in the order in which they were filled.
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for sae_id, sentence in said:
        found[sentence][f"`{sae_id}`"] = None
    if len(found) == 1:
        return list(found)
    return [f"{', '.join(of)}: {sentence}" for sentence, of in found.items()]


def _say(sentence: str, *values: object) -> str:
    """Write one of the sentences."""
    written = getattr(_LANGUAGE.get_template(SENTENCES).module, sentence)(*values)
    return " ".join(written.split())


def _text(value: Any) -> str:
    """Show a value that is no markup where it stands, in a cell of a table, too."""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return printable(re.sub(r"[\\`*_|\[\]<>]", r"\\\g<0>", " ".join(shown.split())))


def _code(value: Any) -> str:
    """Show a value that is no markup between backticks, in a cell of a table, too."""
    return printable(re.sub(r"[`|<>]", "'", " ".join(str(value).split())))


def printable(text: str) -> str:
    """Keep the printable characters and ends of lines: none that a terminal obeys."""
    return "".join(sign for sign in text if sign.isprintable() or sign == "\n")


def _duration(seconds: float) -> str:
    if seconds >= 90 * 60:
        return f"{seconds / 3600:.1f} hours"
    if seconds >= 60:
        return counted(seconds / 60, "minute")
    return counted(max(1, seconds), "second")


_LANGUAGE = Environment(loader=FileSystemLoader(CARDS))
_LANGUAGE.filters.update(text=_text, code=_code, printable=printable, duration=_duration)
_LANGUAGE.globals.update(
    cosines=THRESHOLDS, jaccards=JACCARDS, absorption_advice=ABSORPTION_ADVICE
)


# Pictures


def pictures(facts: RepoFacts) -> dict[str, bytes]:
    """Draw PNG files, by their paths: those of which there are numbers."""
    kinds = sorted({sae.kind for sae in facts.saes.values()})
    colors = {kind: color_of(number) for number, kind in enumerate(kinds)}
    distributions: list[Distribution] = []
    chance = set()
    for sae in facts.saes.values():
        metrics = sae.metrics_of(WEIGHTS)
        counts = max_cosine_counts(metrics)
        if counts and sum(counts):
            is_first = sae.kind not in {label for label, _, _ in distributions}
            distributions.append((sae.kind if is_first else None, colors[sae.kind], counts))
            chance |= {metrics[_CHANCE]} if _CHANCE in metrics else set()
    if not distributions:
        return {}
    return {f"{FIGURES}/max_cosines.png": png(max_cosine_figure(distributions, chance))}
