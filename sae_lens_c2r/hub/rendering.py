"""The text, metadata and pictures of a card. Every number is of an evaluation, by its key."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from huggingface_hub import CardData, EvalResult
from huggingface_hub.repocard_data import eval_results_to_model_index
from jinja2 import Environment, PackageLoader

from sae_lens_c2r._support.errors import UserError, counted
from sae_lens_c2r.analysis.cofiring import JACCARDS
from sae_lens_c2r.analysis.metrics import METRICS
from sae_lens_c2r.evaluation.catalog import ABSORPTION_ADVICE, EVALUATIONS
from sae_lens_c2r.hub.repo_record import RepoRecord
from sae_lens_c2r.inspection.measures import THRESHOLDS, max_cosine_counts
from sae_lens_c2r.releases.model import FIGURES
from sae_lens_c2r.reporting.figures import Distribution, color_of, max_cosine_figure, png
from sae_lens_c2r.reporting.tables import metric_table
from sae_lens_c2r.saes.record import (
    HELD_OUT,
    KNOWN_FEATURES,
    SAE_LENS,
    TRAINING,
    WEIGHTS,
    SAERecord,
)

TEMPLATE, SENTENCES = "card.md.jinja", "sentences.jinja"
CITATION = files("sae_lens_c2r.hub").joinpath("citations.bib")
BEGIN = "<!-- sae-lens-c2r:begin. What follows is rewritten by every upload. -->"
END = "<!-- sae-lens-c2r:end. What follows is yours, and so is what stands above. -->"
INDEX, TASK = "model-index", "sparse autoencoder"  # and what our results in it are of
_PROJECT = "https://github.com/sae-lens-c2r/sae-lens-c2r"
_PAPER = "2606.30609"  # on arXiv, as are these, by what names an architecture
_WORKS = {
    "batchtopk": ("BatchTopK", "2412.06410"),
    "matryoshka": ("Matryoshka SAEs", "2503.17547"),
    "ort": ("OrtSAE", "2509.22033"),
}
_SAE_BENCH = ("SAEBench", "2503.09532")
_PENALTIES = {"C2R": "c2r_coefficient", "OrtSAE": "ort_coefficient"}
# In the order of a card, by their names there; SAEBench's have the names that it gives them.
_EVALUATIONS = {
    HELD_OUT: "Held-out text",
    SAE_LENS: "SAELens",
    KNOWN_FEATURES: "Known features",
    WEIGHTS: "Weights",
    **{name: f"SAEBench {name}" for name in EVALUATIONS},
    TRAINING: "End of training",
}
# Of these, the first that there is stands at the top of a card.
_MAIN = (HELD_OUT, SAE_LENS, KNOWN_FEATURES, "core")
_AT_THE_TOP = (
    *("explained_variance", "l0", "dead_latents", "loss_recovered", "loss_recovered_error"),
    *("mcc", "f1", "composition", "chance_composition"),
)
_OF_A_HEAD = re.compile(r"hook_[qkvz]$").search  # an SAE may encode one head alone
_RECONSTRUCTION = "reconstruction = sae.decode(feature_acts)"
_OUTPUT = "output = sae(activations)  # of the module that the transcoder stands for"
_IN_INDEX = 3  # metrics of one SAE, for a search on the Hub
# Differences that anyone would act on.
_SMALLEST = {"explained_variance": 0.005, "dead_latents": 0.01}
_AT_MOST = 7  # columns of a table, so that none is wider than the page


def render(repo: RepoRecord, figures: Iterable[str] = ()) -> str:
    """Render the card of SAEs, with pictures by their paths."""
    saes, models = repo.saes, repo.base_models
    options = {option for sae in saes.values() for option in sae.options}
    penalties = {name: option for name, option in _PENALTIES.items() if option in options}
    with_c2r = [sae_id for sae_id, sae in saes.items() if _PENALTIES["C2R"] in sae.options]
    is_choice = 0 < len(with_c2r) < len(saes)
    choice = _choice(saes, _main(saes)) if is_choice else None
    example = choice.distinct if choice else next(iter(with_c2r or saes))
    first = saes[example]
    hook_name = first.hook_name or ""
    runs_model = (first.model_name or first.model) and hook_name and not _OF_A_HEAD(hook_name)
    measured = list(_measured(repo))
    data = CardData(
        base_model=models[0] if len(models) == 1 else models or None,
        datasets=repo.datasets or None,
        library_name="saelens",
        license=repo.license,
        tags=["sparse-autoencoder", "sae", "interpretability", *["c2r"] * ("C2R" in penalties)],
        **{INDEX: _model_index(example, saes[example]) or None},  # type: ignore[arg-type]
    )
    card = _LANGUAGE.get_template(TEMPLATE).render(
        card_data=data.to_yaml(),
        repo=repo,
        example=example,
        first=first,
        runs_model=runs_model,
        result=_OUTPUT if "transcoder" in first.kind else _RECONSTRUCTION,
        penalties=penalties,
        is_choice=is_choice,
        choice=choice,
        measured=measured,
        main=_at_the_top(repo),
        works=_works(repo),
        co_firing=any("co-firing" in table for _, table, _ in measured),
        trained=_how_trained(repo),
        figures=figures,
    )
    card = card.replace("\r\n", "\n")
    if card.count("<!-- sae-lens-c2r:") != 2:
        raise UserError("A card should have our marks once. Found another mark in its text.")
    return re.sub(r"\n{3,}", "\n\n", card).rstrip() + "\n"


class _Choice(NamedTuple):
    """Which SAE to take where directions are to be distinct, and which otherwise."""

    distinct: str
    otherwise: str
    at_chance: bool  # whether the composition of the first is


def _main(saes: Mapping[str, SAERecord]) -> str:
    """The evaluation that stands at the top."""
    found = (name for name in _MAIN if any(_shown(sae, name) for sae in saes.values()))
    return next(found, WEIGHTS)


def _choice(saes: Mapping[str, SAERecord], main: str) -> _Choice | None:
    """Of alike SAEs, one with C2R and distinct directions, and one that explains the most."""
    alike = {
        (sae.model or sae.model_name, sae.hook_name, sae.d_sae, sae.options.get("k"))
        for sae in saes.values()
    }
    if len(alike) > 1 or alike.pop()[-1] is None:  # of other L0, perhaps
        return None
    how = [sae.evaluations[main] for sae in saes.values() if main in sae.evaluations]
    if any((each.text, each.settings) != (how[0].text, how[0].settings) for each in how):
        return None
    above_chance, unexplained, dead = dict[str, float](), dict[str, float](), dict[str, float]()
    for sae_id, sae in saes.items():
        found = {**sae.metrics_of(WEIGHTS), **_shown(sae, main)}
        unexplained[sae_id] = 1 - found.get("explained_variance", math.nan)
        dead[sae_id] = found.get("dead_latents", 0)
        chance = found.get("chance_composition", math.nan)
        above_chance[sae_id] = found.get("composition", math.nan) - chance
    if any(map(math.isnan, (*above_chance.values(), *unexplained.values()))):
        return None

    def by_distance(sae_id: str) -> tuple[float, float]:
        above = above_chance[sae_id]
        return max(above, 0), -above  # Below chance is no gain.

    ours = min(saes, key=by_distance)
    if _PENALTIES["C2R"] not in saes[ours].options:
        return None
    most = min(unexplained, key=unexplained.__getitem__)
    costs_nothing = (
        unexplained[ours] - unexplained[most] < _SMALLEST["explained_variance"]
        and dead[ours] - dead[most] < _SMALLEST["dead_latents"]
    )
    return _Choice(ours, ours if costs_nothing else most, at_chance=above_chance[ours] <= 0)


def _shown(sae: SAERecord, evaluation: str) -> dict[str, float]:
    """The metrics of an evaluation on a card: those of the weights stand in theirs alone."""
    # Nor does a card say what was counted in training of what was measured afterwards.
    others = {TRAINING: (*_MAIN, WEIGHTS), WEIGHTS: ()}.get(evaluation, (WEIGHTS,))
    elsewhere = {key for name in others for key in sae.metrics_of(name)}
    metrics = sae.metrics_of(evaluation)
    return {key: metrics[key] for key in METRICS if key in metrics and key not in elsewhere}


def _model_index(sae_id: str, sae: SAERecord) -> list[dict[str, Any]]:
    """A few metrics of one SAE, rounded, as the Hub's searches read them."""
    results = [
        EvalResult(
            task_type="feature-extraction",
            task_name=TASK,
            dataset_type=re.sub(r"[^\w./-]+", "-", dataset),
            dataset_name=dataset,
            metric_type=key,
            metric_name=METRICS[key].title,
            metric_value=float(format(value, METRICS[key].shown)),
        )
        for name in (*_MAIN, WEIGHTS)
        for dataset in [_dataset_of(sae, name)]
        for key, value in _shown(sae, name).items()
        if key in _AT_THE_TOP
    ]
    return eval_results_to_model_index(sae_id, results[:_IN_INDEX]) if results else []


def _dataset_of(sae: SAERecord, evaluation: str) -> str:
    """The text, or the samples, that an evaluation was measured on."""
    if evaluation == SAE_LENS and evaluation in sae.evaluations:
        return sae.evaluations[evaluation].text or "training text"
    return _EVALUATIONS[evaluation]


def _works(repo: RepoRecord) -> list[tuple[str, str]]:
    """The works to cite beside C2R: of architectures, and of SAEBench if it was run."""
    saes = repo.saes.values()
    kinds = {part for sae in saes for part in sae.kind.split("_")}
    found = [work for name, work in _WORKS.items() if name in kinds]
    is_run = any(name in sae.evaluations for sae in saes for name in EVALUATIONS)
    return [*found, *[_SAE_BENCH] * is_run]


# Sentences


def _at_the_top(repo: RepoRecord) -> tuple[str, list[str]] | None:
    """A table of what counts most, and a paragraph on how it was measured."""
    main = _main(repo.saes)
    numbers = [
        (f"`{sae_id}`", {**sae.metrics_of(WEIGHTS), **_shown(sae, main)})
        for sae_id, sae in repo.saes.items()
    ]
    table = metric_table([each for each in numbers if each[1]], _AT_THE_TOP)
    return (table.in_markdown(columns=_AT_MOST), _how(repo, main)) if table.metrics else None


def _how(repo: RepoRecord, name: str) -> list[str]:
    """How an evaluation was done, a paragraph for the SAEs that share it."""
    return _each_once(
        (sae_id, _say("measured", name, sae.evaluations[name]))
        for sae_id, sae in repo.saes.items()
        if _shown(sae, name)
    )


def _measured(repo: RepoRecord) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each evaluation's name, its table, and a paragraph for the SAEs that share it."""
    for name, shown in _EVALUATIONS.items():
        saes = [(f"`{sae_id}`", _shown(sae, name)) for sae_id, sae in repo.saes.items()]
        if any(metrics for _, metrics in saes):
            yield shown, metric_table(saes).in_markdown(columns=_AT_MOST), _how(repo, name)


def _how_trained(repo: RepoRecord) -> Iterator[str]:
    """Yield how the SAEs were trained, a paragraph for those that share it."""
    said = ((sae_id, _say("trained", sae)) for sae_id, sae in repo.saes.items())
    yield from _each_once(said)
    for name, option in _PENALTIES.items():
        if coefficients := _say("coefficients", name, option.partition("_")[0], repo.saes):
            yield coefficients


def _each_once(said: Iterable[tuple[str, str]]) -> list[str]:
    """Return each sentence once, after its SAEs if there are several sentences."""
    found: dict[str, list[str]] = defaultdict(list)
    for sae_id, sentence in said:
        found[sentence].append(f"`{sae_id}`")
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


_LANGUAGE = Environment(loader=PackageLoader("sae_lens_c2r", "hub"))
_LANGUAGE.filters.update(text=_text, code=_code, printable=printable, duration=_duration)
_LANGUAGE.globals.update(
    begin=BEGIN,
    end=END,
    paper=_PAPER,
    project=_PROJECT,
    citation=CITATION.read_text(encoding="utf-8").strip(),
    cosines=THRESHOLDS,
    jaccards=JACCARDS,
    absorption_advice=ABSORPTION_ADVICE,
)


# Pictures


def pictures(repo: RepoRecord) -> dict[str, bytes]:
    """Draw PNG files, by their paths: those of which there are numbers."""
    labels = sorted({_label(sae) for sae in repo.saes.values()})
    colors = {label: color_of(number) for number, label in enumerate(labels)}
    distributions: list[Distribution] = []
    chance = set()
    for sae in repo.saes.values():
        metrics = sae.metrics_of(WEIGHTS)
        counts = max_cosine_counts(metrics)
        if counts and sum(counts) and "chance_composition" in metrics:
            label = _label(sae)
            is_first = label not in {known for known, _, _ in distributions}
            distributions.append((label if is_first else None, colors[label], counts))
            chance.add(metrics["chance_composition"])
    if not distributions:
        return {}
    return {f"{FIGURES}/max_cosines.png": png(max_cosine_figure(distributions, chance))}


def _label(sae: SAERecord) -> str:
    """The architecture and its penalties, as the card's table has them."""
    strengths = (
        f"{name} {str(sae.options[key]).removesuffix('.0')}"
        for name, key in _PENALTIES.items()
        if key in sae.options
    )
    return ", ".join([sae.kind, *strengths])
