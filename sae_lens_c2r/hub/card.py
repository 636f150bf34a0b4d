"""A card: `README.md` of a repository, written of what is known of its SAEs.

Our part stands between two marks; every other word of the file is somebody's, and stays.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from huggingface_hub import CardData, EvalResult, RepoCard
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.repocard_data import eval_results_to_model_index
from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.files import write_bytes
from sae_lens_c2r.evaluation.catalog import (
    HELD_OUT,
    KNOWN_FEATURES,
    SAE_LENS,
    TRAINING,
    WEIGHTS,
)
from sae_lens_c2r.hub.facts import RepoFacts
from sae_lens_c2r.hub.local_saes import LocalSAE, SAEs, Submission, check_saes, repo_facts
from sae_lens_c2r.hub.pictures import pictures
from sae_lens_c2r.hub.provenance import CARDS, how_measured, how_trained
from sae_lens_c2r.hub.rules import FACTS, FIGURES, README, refuse_nested, refuse_secrets
from sae_lens_c2r.hub.tables import (
    PENALTIES,
    CardNumber,
    card_numbers,
    code,
    measurement_table,
    printable,
    sae_table,
)

TEMPLATE = "card.md.jinja"
BEGIN = "<!-- sae-lens-c2r:begin. What follows is rewritten by every upload. -->"
END = "<!-- sae-lens-c2r:end. What follows is yours, and so is what stands above. -->"
_BEGIN, _END = (re.compile(f"<!-- sae-lens-c2r:{mark}\\b.*?-->") for mark in ("begin", "end"))
_INDEX, _TASK = "model-index", "sparse autoencoder"  # and what our results in it are of
LISTS = ("base_model", "datasets", "tags")  # metadata which others add to
_TAGS = ("sparse-autoencoder", "sae", "interpretability")
_DATA = {KNOWN_FEATURES: "known features", HELD_OUT: "held-out text", TRAINING: "training text"}
_PAPER = "2606.30609"  # on arXiv
_AUTHORS_CODE = "https://github.com/hr-jin/Cross-sample-Consistency-Regularization"


def write_card(
    saes: SAEs | Submission,
    out: Path,
    *,
    repo_id: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Render the card of SAEs, joined with what a folder has.

    Args:
        saes: Folders, each of one SAE or of many, or SAEs in memory by their ids; with what
            else is said of them, a `Submission`.
        out: A folder, like a repository: its `README.md` keeps what stands outside our marks.
        repo_id: The repository that the card is for; by itself that of the release, or of the
            one that training recorded.
        tell: Told of what is done.

    Returns:
        The card's file. Beside it are its pictures and what it was made of.

    Raises:
        UserError: If one of the SAEs is not fit to be published, or `out` has the card of
            another repository.
    """
    submission = Submission.of(saes)
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        local = check_saes(submission, Path(scratch), tell)
        repo_id = repo_id or _recorded_repo_id(submission, local)
        facts = repo_facts(submission, local, repo_id)
    path = out / FACTS
    found = RepoFacts.read(path.read_bytes()).repo_id if path.is_file() else repo_id
    if found != repo_id:
        raise UserError(
            f"`out` should be a new folder, or one with the card of {repo_id}. Found the card "
            f"of {found} in {out}."
        )
    write_card_files(facts, out)
    return out / README


def _recorded_repo_id(submission: Submission, saes: Iterable[LocalSAE]) -> str:
    """Return the repository of the release, or of the one that all SAEs were trained of."""
    releases = [submission.release or (sae.record and sae.record.release) for sae in saes]
    found = {release.repo_id if release else None for release in releases}
    repo_id = found.pop() if len(found) == 1 else None
    if repo_id is None:
        raise UserError("`repo-id` should be given, like org/name, where there is no release.")
    return repo_id


def write_card_files(facts: RepoFacts, out: Path) -> None:
    """Write a card into a folder, with its pictures and what it was made of."""

    def read(path: str) -> bytes | None:
        return (out / path).read_bytes() if (out / path).is_file() else None

    for path, content in card_files(facts, read).items():
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out / path, content)


def card_files(
    facts: RepoFacts, read: Callable[[str], bytes | None] = lambda _: None
) -> dict[str, bytes]:
    """Write a card, of SAEs and of all that a repository has, with what belongs to it."""
    known, existing = read(FACTS), _text(read(README))
    facts = facts if known is None else RepoFacts.read(known).joined(facts)
    refuse_nested(facts.saes)
    if existing:
        license = _license(existing, facts.license)
        facts = facts.model_copy(update={"license": license})
    drawn = {f"{FIGURES}/{name}": content for name, content in _drawn(facts.to_json()).items()}
    written = {README: merged(existing, render(facts, drawn)), FACTS: facts.to_json()}
    for name, content in written.items():
        refuse_secrets(name, content)
    return {**{name: content.encode() for name, content in written.items()}, **drawn}


@lru_cache(maxsize=2)  # a branch is looked at more than once
def _drawn(facts: str) -> dict[str, bytes]:
    return pictures(RepoFacts.read(facts))


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{README} of the repository should be UTF-8. {error}") from None


def _license(existing: str, license: str | None) -> str | None:
    """Return the licence that a repository's `README.md` says, which ours should be, too."""
    said = split_card(existing)[1].get("license")
    if not isinstance(said, str):
        return license
    if license is not None and said != license:
        raise UserError(
            f"`license` should be that of {README} in the repository, {said}, which "
            f"`--license {said}` confirms. Found {license}."
        )
    return said


# Rendering


def render(facts: RepoFacts, figures: Iterable[str] = ()) -> str:
    """Render the card of SAEs, with pictures by their paths."""
    saes = facts.saes.items()
    with_c2r = (sae_id for sae_id, sae in saes if "c2r_coefficient" in sae.options)
    example = next(with_c2r, next(iter(facts.saes)))
    first = facts.saes[example]
    penalties, models = _penalties(facts), facts.base_models
    data = CardData(
        base_model=models[0] if len(models) == 1 else models or None,
        datasets=facts.datasets or None,
        library_name="saelens",
        license=facts.license,
        tags=[*_TAGS, *(["c2r"] if "C2R" in penalties else [])],
        **{_INDEX: _model_index(facts) or None},  # type: ignore[arg-type]
    )
    card = RepoCard.from_template(
        data,
        template_path=str(CARDS / TEMPLATE),
        title=facts.repo_id.partition("/")[2],
        repo_id=facts.repo_id,
        begin=BEGIN,
        end=END,
        facts_file=FACTS,
        paper=_PAPER,
        authors_code=_AUTHORS_CODE,
        citation=(CARDS / "citations.bib").read_text(encoding="utf-8").strip(),
        description=printable(facts.description or ""),
        example=example,
        hook_name=code(first.training.hook_name or ""),
        model=code(first.training.model_name or first.training.model or ""),
        model_class=code(first.training.model_class or "HookedTransformer"),
        d_in=first.d_in,
        d_sae=first.d_sae,
        saes=sae_table(facts),
        penalties=penalties,
        measurements=measurement_table(facts),
        how=_bullets(how_measured(facts)),
        pictures={Path(path).name: path for path in figures},
        training=_bullets(how_trained(facts)),
        license=facts.license,
        base_models=models,
    )
    rendered = str(card).replace("\r\n", "\n")
    if rendered.count("<!-- sae-lens-c2r:") != 2:
        raise UserError("A card should have our marks once. What it says has such a mark, too.")
    return re.sub(r"\n{3,}", "\n\n", rendered).rstrip() + "\n"


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _penalties(facts: RepoFacts) -> list[str]:
    """The penalties that any of the SAEs was trained with."""
    options = {option for sae in facts.saes.values() for option in sae.options}
    return [name for name, prefix in PENALTIES.items() if f"{prefix}_coefficient" in options]


def _model_index(facts: RepoFacts) -> list[dict[str, Any]]:
    results: dict[str, list[EvalResult]] = {}
    for each in card_numbers(facts):
        name = _dataset(each)
        result = EvalResult(
            task_type="feature-extraction",
            task_name=_TASK,
            dataset_type=re.sub(r"[^\w./-]+", "-", name),
            dataset_name=name,
            metric_type=re.sub(r"[^a-z0-9]+", "_", each.column.title.lower()).strip("_"),
            metric_name=each.column.title,
            metric_value=each.value,
        )
        results.setdefault(each.sae_id, []).append(result)
    return [eval_results_to_model_index(sae_id, of)[0] for sae_id, of in results.items()]


def _dataset(number: CardNumber) -> str:
    evaluation = number.column.evaluation
    if evaluation == WEIGHTS:
        return "weights"
    if evaluation == SAE_LENS:
        return number.evaluation.text or "training text"
    return _DATA.get(evaluation) or f"SAEBench {evaluation}"


# Joining with what a repository has


def split_card(content: str) -> tuple[str, dict[str, Any], str]:
    """Split a `README.md` into its front matter, what that says, and the text after it."""
    content = content.removeprefix("\ufeff")  # with which the Hub sees no metadata
    found = REGEX_YAML_BLOCK.match(content)
    if not found:
        return "", {}, content
    try:
        said = yaml.safe_load(f"{found[2]}\n") or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"{README} should have metadata in YAML. {one_line(error)}") from None
    if not isinstance(said, dict):
        raise UserError(f"{README} should have a mapping as metadata. Found {said!r}.")
    return content[: found.end()], said, content[found.end() :]


def merged(existing: str | None, card: str) -> str:
    """Bring a card into the file that a repository has; other words and metadata stay."""
    if existing is None:
        return card
    (front, known, body), (_, new, ours) = split_card(existing), split_card(card)
    newline = "\r\n" if "\r\n" in existing else "\n"
    joined = {**new, **known}
    joined |= {key: _joined(known.get(key), new[key]) for key in LISTS if key in new}
    if _INDEX in new:
        joined[_INDEX] = _joined_index(known.get(_INDEX), new[_INDEX])
    if joined != known:
        in_order = {key: joined[key] for key in [*known, *new]}
        written = f"---\n{yaml_dump(in_order, sort_keys=False).strip()}\n---\n"
        front = written.replace("\n", newline)
    return front + _with_block(body, ours, newline)


def _with_block(body: str, card: str, newline: str) -> str:
    """Put our part into a text: in place of that which it has, or at its end."""
    begins, ends = (list(mark.finditer(body)) for mark in (_BEGIN, _END))
    whole = len(begins) == len(ends) == 1 and begins[0].end() <= ends[0].start()
    if (begins or ends) and not whole:
        raise UserError(
            f"{README} should have the marks {BEGIN} and {END} once each, in this order, or "
            f"none of them. Found {len(begins)} and {len(ends)}."
        )
    block = card[card.index(BEGIN) : card.index(END) + len(END)].replace("\n", newline)
    if whole:
        return body[: begins[0].start()] + block + body[ends[0].end() :]
    gap = newline * 2 if body.strip() else ""
    return body.rstrip("\r\n") + gap + block + newline


def _joined(known: Any, new: Any) -> Any:
    """Join what a list has, and what it is to have beside that."""
    before, after = (
        value if isinstance(value, list) else [value] for value in (known or [], new)
    )
    together = before + [value for value in after if value not in before]
    return known if together == before else new if not before else together


def _joined_index(known: Any, new: list[dict[str, Any]]) -> list[Any]:
    """Put our results in place of our earlier ones, among everybody else's."""
    ours = {entry["name"]: entry for entry in new}
    index = []
    for entry in known if isinstance(known, list) else []:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str) or name not in ours:
            index.append(entry)
            continue
        theirs = [each for each in entry.get("results") or [] if not _is_ours(each)]
        index.append({**entry, "results": [*theirs, *ours.pop(name)["results"]]})
    return [*index, *ours.values()]


def _is_ours(result: Any) -> bool:
    task = result.get("task") if isinstance(result, dict) else None
    return isinstance(task, dict) and task.get("name") == _TASK
