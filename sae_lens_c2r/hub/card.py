"""A card: `README.md` of a repository, whose part between two marks is ours.

Every number of it is of an evaluation, by its key. The rest of the file stays as it is.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub.repocard import RepoCard
from jinja2 import Environment, PackageLoader

from sae_lens_c2r._support.errors import UserError, counted
from sae_lens_c2r._support.files import write_bytes
from sae_lens_c2r.analysis.cofiring import JACCARDS
from sae_lens_c2r.analysis.metrics import METRICS
from sae_lens_c2r.evaluation.settings import ABSORPTION, ABSORPTION_ADVICE, EVALUATIONS
from sae_lens_c2r.hub.allow_list import check_names, refuse_secrets
from sae_lens_c2r.hub.letters import less_first
from sae_lens_c2r.hub.local_saes import Submission, check_saes, repo_record
from sae_lens_c2r.hub.repo_record import RepoRecord
from sae_lens_c2r.inspection.measures import THRESHOLDS, max_cosine_counts
from sae_lens_c2r.releases.model import FACTS, FIGURES, README, check_ids
from sae_lens_c2r.reporting.figures import Distribution, color_of, max_cosine_figure, png
from sae_lens_c2r.reporting.tables import metric_table, short_names
from sae_lens_c2r.saes.record import SAE_LENS, WEIGHTS, SAERecord

TEMPLATE, SENTENCES = "card.md.jinja", "sentences.jinja"
CITATION = files("sae_lens_c2r.hub").joinpath("citations.bib")
BEGIN = "<!-- sae-lens-c2r:begin. What follows is rewritten by every upload. -->"
END = "<!-- sae-lens-c2r:end. What follows is yours, and so is what stands above. -->"
_MARKS = re.compile(r"<!-- sae-lens-c2r:(begin|end)\b.*?-->")
LISTS = ("base_model", "datasets", "tags")  # metadata which others add to
_PROJECT = "https://github.com/sae-lens-c2r/sae-lens-c2r"
_PAPER = "2606.30609"  # on arXiv
_PENALTIES = {"C2R": "c2r_coefficient", "OrtSAE": "ort_coefficient"}
# In the order of a card, by their names there; SAEBench's have the names that it gives them.
_EVALUATIONS = {
    SAE_LENS: "SAELens",
    WEIGHTS: "Weights",
    **{name: f"SAEBench {name}" for name in EVALUATIONS},
}
# Of these, the first that there is stands at the top of a card.
_MAIN = (SAE_LENS, "core")
_AT_THE_TOP = (
    *("explained_variance", "l0", "dead_latents", "loss_recovered"),
    *("composition", "encoder_composition", "chance_composition"),
)
_OF_A_HEAD = re.compile(r"hook_[qkvz]$").search  # an SAE may encode one head alone
_RECONSTRUCTION = "reconstruction = sae.decode(feature_acts)"
_OUTPUT = "output = sae(activations)  # of the module that the transcoder stands for"
_LESS = "The same, letter by letter: mean differences with their 95 % intervals over letters."
_AT_MOST = 7  # columns of a table, so that none is wider than the page


def write_card(
    saes: Sequence[Path] | Submission,
    out: Path,
    *,
    repo_id: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Render the card of SAEs, joined with what a folder has.

    Args:
        saes: Folders, each with one or more SAEs, or a `Submission`, which says more of them.
        out: A folder, like a repository: its `README.md` keeps what stands outside our marks.
        repo_id: The repository that the card is for; by default the repository of the release
            that is given, or that training recorded.
        tell: Called with lines on the progress.

    Returns:
        The card's file. Beside it are its pictures and its records.

    Raises:
        UserError: If one of the SAEs is not fit to be published, or `out` has the card of
            another repository.
    """
    check_names(repo_id=repo_id)
    submission = saes if isinstance(saes, Submission) else Submission(saes)
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        local = check_saes(submission, Path(scratch), tell)
        repo = repo_record(submission, local, repo_id, tell)

    def read(path: str) -> bytes | None:
        return (out / path).read_bytes() if (out / path).is_file() else None

    known = read(FACTS)
    found = repo.repo_id if known is None else RepoRecord.read(known).repo_id
    if found != repo.repo_id:
        should = f"be a new folder, or hold the card of {repo.repo_id}"
        raise UserError("out", should, f"the card of {found} in {out}")
    for path, content in card_files(repo, read).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out / path, content)
    return out / README


def card_files(
    repo: RepoRecord,
    read: Callable[[str], bytes | None] = lambda _: None,
    *,
    there: Collection[str] | None = None,  # the files of the repository, if it has the SAEs'
) -> dict[str, bytes]:
    """Render a card of SAEs and of those that its repository has, with pictures and records."""
    known, readme = read(FACTS), read(README)
    before = None if known is None else RepoRecord.read(known)
    repo = repo if before is None else before.joined(repo, there)
    had = [*before.base_models, *before.datasets] if before else []
    gone = [name for name in had if name not in (*repo.base_models, *repo.datasets)]
    check_ids(repo.saes)
    name = repo.repo_id.partition("/")[2]
    card = RepoCard(readme.decode("utf-8-sig") if readme else f"---\n\n---\n\n# {name}\n")
    repo = _with_license_of(card, repo)
    drawn = pictures(repo)
    block, facts = render(repo, drawn), repo.to_json()
    for path, text in {README: block, FACTS: facts}.items():
        refuse_secrets(path, text)  # what others wrote on the card is public already
    merged = merge(card, metadata_of(repo), block, gone)
    return {README: merged.encode(), FACTS: facts.encode(), **drawn}


def _with_license_of(card: RepoCard, repo: RepoRecord) -> RepoRecord:
    """The record with the licence that a repository's card has, which has to be the same."""
    said = card.data.get("license")
    licenses = said if isinstance(said, list) else [said] if said else []
    if licenses and repo.license not in (None, *licenses):
        should = f"be {' or '.join(map(str, licenses))}, as in {README} of the repository"
        raise UserError("license", should, repo.license)
    return repo.model_copy(update={"license": said}) if isinstance(said, str) else repo


def metadata_of(repo: RepoRecord) -> dict[str, Any]:
    """The front matter of a card."""
    models = repo.base_models
    options = {option for sae in repo.saes.values() for option in sae.options}
    c2r = ["c2r"] if _PENALTIES["C2R"] in options else []
    found = {
        "base_model": models[0] if len(models) == 1 else models,
        "datasets": repo.datasets,
        "library_name": "saelens",
        "license": repo.license,
        "tags": ["sparse-autoencoder", "sae", "interpretability", *c2r],
    }
    return {key: value for key, value in found.items() if value}


def merge(
    card: RepoCard, metadata: Mapping[str, Any], block: str, gone: Collection[str] = ()
) -> str:
    """A card with our part and metadata, of which the rest stays but for what is gone."""
    for key in dict.fromkeys([*metadata, *LISTS]):
        known, new = card.data.get(key), metadata.get(key)
        if key in LISTS:
            card.data[key] = _joined(known, new, gone)
        elif known is None:
            card.data[key] = new
    # By `str(card)`, a single carriage return in the text would end the lines of the metadata.
    return f"---\n{card.data.to_yaml()}\n---\n{_with_block(card.text, block)}"


def _with_block(text: str, block: str) -> str:
    """Put our part into a text: in place of an earlier one, or at the end."""
    marks = list(_MARKS.finditer(text))
    if not marks:
        gap = "\n\n" if text.strip() else ""
        return text.rstrip("\r\n") + gap + block + "\n"
    if [mark[1] for mark in marks] != ["begin", "end"]:
        should = f"have the marks {BEGIN} and {END} once each, in this order, or neither mark"
        raise UserError(Path(README), should)
    return text[: marks[0].start()] + block + text[marks[1].end() :]


def _joined(known: Any, new: Any, gone: Collection[str]) -> Any:
    """Join what a list has, but for what is gone, and what it is to have beside that."""
    had, ours = (value if isinstance(value, list) else [value] for value in (known, new))
    before = [value for value in had if value is not None and value not in gone]
    together = before + [value for value in ours if value is not None and value not in before]
    return (known if together == had else together if before else new) or None


def render(repo: RepoRecord, figures: Iterable[str] = ()) -> str:
    """Render our part of the card of SAEs, with pictures by their paths."""
    saes = repo.saes
    options = {option for sae in saes.values() for option in sae.options}
    penalties = {name: option for name, option in _PENALTIES.items() if option in options}
    with_c2r = [sae_id for sae_id, sae in saes.items() if _PENALTIES["C2R"] in sae.options]
    example = next(iter(with_c2r or saes))
    first = saes[example]
    hook_name = first.hook_name or ""
    runs_model = (first.model_name or first.model) and hook_name and not _OF_A_HEAD(hook_name)
    shown = repo.model_copy(
        update={"saes": dict(zip(short_names([*saes]), saes.values(), strict=True))}
    )
    measured = list(_measured(shown))
    block = _LANGUAGE.get_template(TEMPLATE).render(
        repo=repo,
        example=example,
        first=first,
        runs_model=runs_model,
        result=_OUTPUT if "transcoder" in first.kind else _RECONSTRUCTION,
        penalties=penalties,
        measured=measured,
        main=_at_the_top(shown),
        co_firing=any("co-firing" in table for _, table, _ in measured),
        trained=_how_trained(shown),
        figures=figures,
    )
    block = block.replace("\r\n", "\n")
    if len(_MARKS.findall(block)) != 2:
        raise UserError("A description should have no marks of a card.")
    return re.sub(r"\n{3,}", "\n\n", block).strip()


def _main(saes: Mapping[str, SAERecord]) -> str:
    """The evaluation that stands at the top."""
    found = (name for name in _MAIN if any(_shown(sae, name) for sae in saes.values()))
    return next(found, WEIGHTS)


def _shown(sae: SAERecord, evaluation: str) -> dict[str, float]:
    """The metrics of an evaluation on a card: those of the weights stand in theirs alone."""
    elsewhere = sae.metrics_of(WEIGHTS) if evaluation != WEIGHTS else {}
    metrics = sae.metrics_of(evaluation)
    return {key: metrics[key] for key in METRICS if key in metrics and key not in elsewhere}


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
            tables = [metric_table(saes).in_markdown(columns=_AT_MOST)]
            if name == ABSORPTION and (differences := less_first(repo.saes, _plain(repo.saes))):
                tables += [_LESS, differences]
            yield shown, "\n\n".join(tables), _how(repo, name)


def _plain(saes: Mapping[str, SAERecord]) -> str:
    """The first SAE that was trained without a penalty, or else the first one."""
    penalties = set(_PENALTIES.values())
    plain = (sae_id for sae_id, sae in saes.items() if penalties.isdisjoint(sae.options))
    return next(plain, next(iter(saes)))


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
