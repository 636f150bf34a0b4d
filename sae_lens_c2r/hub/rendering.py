"""The text, metadata and pictures of a card. Every number is of an evaluation, by its key."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import CardData, EvalResult
from huggingface_hub.repocard_data import eval_results_to_model_index
from jinja2 import Environment, FileSystemLoader
from matplotlib.figure import Figure

from sae_lens_c2r._support.errors import UserError, counted
from sae_lens_c2r._support.files import data_folder
from sae_lens_c2r.analysis.cofiring import JACCARDS
from sae_lens_c2r.evaluation.catalog import (
    CO_FIRING,
    COLUMNS,
    EXPLAINED_VARIANCE,
    HELD_OUT,
    KNOWN_FEATURES,
    L0,
    SAE_LENS,
    TRAINING,
    WEIGHTS,
    Column,
)
from sae_lens_c2r.evaluation.report import max_cosine_counts
from sae_lens_c2r.hub.facts import Evaluation, RepoFacts
from sae_lens_c2r.inspection.measures import THRESHOLDS
from sae_lens_c2r.reporting.figures import (
    Distribution,
    color_of,
    legend_above,
    max_cosine_figure,
    png,
)
from sae_lens_c2r.reporting.tables import markdown_table

CARDS = data_folder("hub_cards")
TEMPLATE, SENTENCES = "card.md.jinja", "sentences.jinja"
BEGIN = "<!-- sae-lens-c2r:begin. What follows is rewritten by every upload. -->"
END = "<!-- sae-lens-c2r:end. What follows is yours, and so is what stands above. -->"
INDEX, TASK = "model-index", "sparse autoencoder"  # and what our results in it are of
_COMPOSITION, _CHANCE = "composition", "chance_composition"
_PAPER = "2606.30609"  # on arXiv
_PENALTIES = {"C2R": "c2r_coefficient", "OrtSAE": "ort_coefficient"}
# What SAELens and SAEBench both measure, by the names that they share.
_SHARED = (
    ("explained variance", EXPLAINED_VARIANCE, 1, ".3f"),
    ("L0", L0, 0, ".1f"),
    ("loss recovered", "model_performance_preservation.ce_loss_score", 1, ".3f"),
)
# The chance level of composition stands where it is said how that was measured.
_ELSEWHERE = (_CHANCE, *(metric for _, metric, _, _ in _SHARED))
_COUNT, _PAIRS = ",.0f", f"{CO_FIRING}.pairs_above"
_CARD_COLUMNS = (
    Column("explained variance (held out)", "", HELD_OUT, "explained_variance", 1),
    Column("L0 (held out)", "", HELD_OUT, "l0", 0, ".1f"),
    Column("dead latents (held out)", "", HELD_OUT, "dead_latents", -1, _COUNT),
    Column("co-firing (held out)", "", HELD_OUT, f"{CO_FIRING}.highest_jaccard", -1),
    *(
        Column(f"{title} ({name})", "", evaluation, metric, better, shown)
        for evaluation, name in {SAE_LENS: "SAELens", "core": "SAEBench"}.items()
        for title, metric, better, shown in _SHARED
    ),
    *(column for column in COLUMNS if column.metric not in _ELSEWHERE),
    Column("dead latents (training)", "", TRAINING, "dead_latents", -1, _COUNT),
    Column("pairs > 0.9", "", WEIGHTS, "pairs_above_0.9", -1, _COUNT),
    Column("pairs > 0.7", "", WEIGHTS, "pairs_above_0.7", -1, _COUNT),
    Column("co-firing by chance", "", SAE_LENS, f"{CO_FIRING}.chance", 0),
    *(
        Column(f"co-firing pairs > {above}", "", SAE_LENS, f"{_PAIRS}_{above}", -1, _COUNT)
        for above in JACCARDS
    ),
)
_DATA = {  # the names of what was measured on, in the metadata
    WEIGHTS: "weights",
    KNOWN_FEATURES: "known features",
    HELD_OUT: "held-out text",
    TRAINING: "training text",
}
_FARTHER = 1.1  # by this factor L0 differs where k does
_Colors = Mapping[str, str]  # by what SAEs were trained as


class _Number(NamedTuple):
    """A number of a card: of one SAE, in one column."""

    sae_id: str
    column: Column
    evaluation: Evaluation
    value: float


def render(facts: RepoFacts, figures: Iterable[str] = ()) -> str:
    """Render the card of SAEs, with pictures by their paths."""
    saes, models = facts.saes, facts.base_models
    options = {option for sae in saes.values() for option in sae.options}
    penalties = {name: option for name, option in _PENALTIES.items() if option in options}
    with_c2r = (sae_id for sae_id, sae in saes.items() if _PENALTIES["C2R"] in sae.options)
    example = next(with_c2r, next(iter(saes)))
    numbers = list(_numbers(facts))
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
        measurements=_measurements(facts, numbers),
        measured=_how_measured(numbers),
        trained=_how_trained(facts),
        pictures={Path(path).name: path for path in figures},
        begin=BEGIN,
        end=END,
        paper=_PAPER,
        citation=(CARDS / "citations.bib").read_text(encoding="utf-8").strip(),
    )
    card = card.replace("\r\n", "\n")
    if card.count("<!-- sae-lens-c2r:") != 2:
        raise UserError("A card should have our marks once. What it says has such a mark, too.")
    return re.sub(r"\n{3,}", "\n\n", card).rstrip() + "\n"


def _numbers(facts: RepoFacts) -> Iterator[_Number]:
    """Yield the numbers of a card, SAE by SAE."""
    for sae_id, sae in facts.saes.items():
        for column in _CARD_COLUMNS:
            value = sae.metrics_of(column.evaluation).get(column.metric)
            if value is not None:
                yield _Number(sae_id, column, sae.evaluations[column.evaluation], value)


def _measurements(facts: RepoFacts, numbers: Iterable[_Number]) -> str:
    """Write, in Markdown, what was measured of each SAE; nothing if nothing was."""
    shown = {
        (each.sae_id, each.column): format(each.value, each.column.shown) for each in numbers
    }
    columns = [each for each in _CARD_COLUMNS if each in {column for _, column in shown}]
    if not columns:
        return ""
    headings = ["SAE", *(column.title + column.arrow for column in columns)]
    rows = [
        [f"`{sae_id}`", *(shown.get((sae_id, column), "") for column in columns)]
        for sae_id in facts.saes
    ]
    return markdown_table(headings, rows)


def _model_index(numbers: Iterable[_Number]) -> list[dict[str, Any]]:
    results: dict[str, list[EvalResult]] = defaultdict(list)
    for number in numbers:
        evaluation = number.column.evaluation
        data = _DATA.get(evaluation) or f"SAEBench {evaluation}"
        if evaluation == SAE_LENS:
            data = number.evaluation.text or _DATA[TRAINING]
        title = number.column.title
        result = EvalResult(
            task_type="feature-extraction",
            task_name=TASK,
            dataset_type=re.sub(r"[^\w./-]+", "-", data),
            dataset_name=data,
            metric_type=re.sub(r"[^a-z0-9]+", "_", title.lower()).strip("_"),
            metric_name=title,
            metric_value=number.value,
        )
        results[number.sae_id].append(result)
    return [eval_results_to_model_index(sae_id, of)[0] for sae_id, of in results.items()]


# Sentences


def _how_measured(numbers: Iterable[_Number]) -> Iterator[str]:
    """Yield how each evaluation was made, a paragraph for the SAEs that share it."""
    # The keys of the inner mappings are sets in the order in which they were filled.
    found: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    titles: dict[str, dict[str, None]] = defaultdict(dict)
    for number in numbers:
        name = number.column.evaluation
        found[name, _say("measured", name, number.evaluation)][number.sae_id] = None
        titles[name][number.column.title] = None
    for (name, sentence), sae_ids in sorted(found.items()):
        alone = sum(other == name for other, _ in found) == 1
        whose = "" if alone else f" ({', '.join(f'`{sae_id}`' for sae_id in sae_ids)})"
        yield f"**{', '.join(titles[name])}**{whose}: {sentence}"


def _how_trained(facts: RepoFacts) -> Iterator[str]:
    """Yield how the SAEs were trained, a paragraph for those that share it."""
    found: dict[str, list[str]] = defaultdict(list)
    for sae_id, sae in facts.saes.items():
        found[_say("trained", sae.training)].append(f"`{sae_id}`")
    for sentence, sae_ids in found.items():
        yield sentence if len(found) == 1 else f"{', '.join(sae_ids)}: {sentence}"
    for name, option in _PENALTIES.items():
        coefficients = {
            sae_id: sae.training.effective_coefficients.get(option.split("_")[0])
            for sae_id, sae in facts.saes.items()
        }
        if came_to := {i: value for i, value in coefficients.items() if value is not None}:
            yield _say("coefficient", name, came_to)


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
_LANGUAGE.globals.update(cosines=THRESHOLDS, jaccards=JACCARDS)


# Pictures


def pictures(facts: RepoFacts) -> dict[str, bytes]:
    """Draw PNG files, by their names: those pictures of which there are numbers."""
    kinds = sorted({sae.kind for sae in facts.saes.values()})
    colors = {kind: color_of(number) for number, kind in enumerate(kinds)}
    drawn = {
        "max_cosines.png": _max_cosines(facts, colors),
        "trade_off.png": _trade_off(facts, colors),
    }
    return {name: png(figure) for name, figure in drawn.items() if figure is not None}


def _max_cosines(facts: RepoFacts, colors: _Colors) -> Figure | None:
    distributions: list[Distribution] = []
    labels: set[str | None] = set()
    chance = set()
    for sae in facts.saes.values():
        metrics = sae.metrics_of(WEIGHTS)
        counts = max_cosine_counts(metrics)
        if counts and sum(counts):
            label = None if sae.kind in labels else sae.kind
            distributions.append((label, colors[sae.kind], counts))
            labels.add(label)
            chance |= {metrics[_CHANCE]} if _CHANCE in metrics else set()
    return max_cosine_figure(distributions, chance) if distributions else None


def _trade_off(facts: RepoFacts, colors: _Colors) -> Figure | None:
    """Draw SAEs of which some differ, within their kind, in their sparsity."""
    for name in (SAE_LENS, "core"):
        points = {kind: found for kind in colors if (found := _points(facts, name, kind))}
        if any(of_kind[-1][0] > _FARTHER * of_kind[0][0] for of_kind in points.values()):
            break
    else:
        return None
    figure = Figure(figsize=(7.2, 3.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for kind, of_kind in points.items():
        l0, variance, composition = zip(*of_kind, strict=True)
        left.plot(l0, variance, "o-", color=colors[kind], label=kind)
        right.plot(l0, composition, "o-", color=colors[kind])
    # From 0, so that a small difference looks small.
    widest = 1.15 * max(of_kind[-1][0] for of_kind in points.values())
    left.set(xlabel="L0", ylabel="explained variance", xlim=(0, widest), ylim=(0, 1))
    right.set(xlabel="L0", ylabel="composition", xlim=(0, widest), ylim=(0, 1))
    legend_above(figure)
    return figure


def _points(facts: RepoFacts, name: str, kind: str) -> list[tuple[float, ...]]:
    """Return the L0, explained variance and composition of SAEs of a kind, in order."""
    keys = (L0, EXPLAINED_VARIANCE, _COMPOSITION)
    saes = [sae for sae in facts.saes.values() if sae.kind == kind]
    metrics = [{**sae.metrics_of(name), **sae.metrics_of(WEIGHTS)} for sae in saes]
    return sorted(tuple(of[key] for key in keys) for of in metrics if of.keys() >= set(keys))
