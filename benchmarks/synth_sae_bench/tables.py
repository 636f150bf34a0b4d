"""The benchmark's tables."""

from collections.abc import Sequence
from math import isfinite

from benchmarks.statistics import Interval, Result, interpolate
from benchmarks.synth_sae_bench.claims import METRICS, QUESTIONS, Question, metrics_of, verdict
from benchmarks.synth_sae_bench.curves import PLAIN, at_every_length, of_full_length
from benchmarks.synth_sae_bench.methods import METHODS, PUBLISHED, label
from benchmarks.synth_sae_bench.wishes import wishes_table
from benchmarks.synth_sae_bench.world import Size
from sae_lens_c2r.reporting.tables import markdown_table

WHICH_ONE = "which one"
BY_SPARSITY = (
    *("explained_variance", "f1", "mcc", "uniqueness", "parents_found"),
    *("absorption", "absorption_of_all", "composition"),
    *("highest_jaccard", "dead_latents"),
)


def tables(size: Size, results: Sequence[Result]) -> dict[str, str]:
    """All tables of one size, in Markdown, by their names.

    Args:
        size: Which size.
        results: Its results, of all training lengths.

    Returns:
        The tables.
    """
    full = of_full_length(size, results)
    found = {"questions": questions_table(size, full), "methods": methods_table(size, full)}
    if len(size.ks) > 1:
        found["sparsities"] = sparsities_table(size, full)
    if size.other_training_samples:
        found["lengths"] = lengths_table(size, results)
    if set(PUBLISHED) <= set(metrics_of(full)):
        found |= {
            WHICH_ONE: wishes_table(size, full),
            "published": published_table(size, full),
        }
    return found


def questions_table(size: Size, results: Sequence[Result]) -> str:
    """Each question with the differences that answer it, at the first sparsity."""
    ours = [each for each in results if each["k"] == size.ks[0]]
    metrics = metrics_of(results)
    rows = [
        [question.first, question.second, question.where, *answer]
        for question in QUESTIONS
        if (answer := _answer(question, ours, metrics))
    ]
    return markdown_table(["of", "less", "where", "seeds", *_named(metrics)], rows)


def sparsities_table(size: Size, results: Sequence[Result]) -> str:
    """What can be asked beyond the first sparsity: at each of them, and in mean of all."""
    metrics = [metric for metric in metrics_of(results) if metric in BY_SPARSITY]
    rows = []
    for question in QUESTIONS:
        at_each = {
            str(k): answer
            for k in sorted(size.ks)
            if (answer := _answer(question, [e for e in results if e["k"] == k], metrics))
        }
        if set(at_each) <= {str(size.ks[0])}:
            continue
        complete = question.of_complete_seeds(results, size.ks)
        if at_all := _answer(question, complete, metrics):
            at_each["all"] = at_all
        about = [question.first, question.second, question.where]
        rows += [[*about, k, *answer] for k, answer in at_each.items()]
    return markdown_table(["of", "less", "where", "k", "seeds", *_named(metrics)], rows)


def lengths_table(size: Size, results: Sequence[Result]) -> str:
    """BatchTopK by training length, and the differences that can be taken at several."""
    metrics, rows = metrics_of(results), []
    ours = at_every_length([each for each in results if each["k"] == size.ks[0]])
    by_length = {
        samples: [each for each in ours if each["training_samples"] == samples]
        for samples in sorted({each["training_samples"] for each in ours})
    }
    for samples, here in by_length.items():
        if plain := [each for each in here if each["method"] == PLAIN]:
            found = (Interval.of([each[metric] for each in plain]) for metric in metrics)
            rows.append([PLAIN, "", "", f"{samples:,}", str(len(plain)), *map(str, found)])
    for question in QUESTIONS:
        answers = {
            samples: answer
            for samples, here in by_length.items()
            if (answer := _answer(question, here, metrics))
        }
        if set(answers) - {size.training_samples}:
            about = [question.first, question.second, question.where]
            rows += [[*about, f"{samples:,}", *answer] for samples, answer in answers.items()]
    return markdown_table(["of", "less", "where", "samples", "seeds", *_named(metrics)], rows)


def _answer(
    question: Question, results: Sequence[Result], metrics: Sequence[str]
) -> list[str] | None:
    """On how many seeds the differences rest, and they; `None` where there are none."""
    cells = []
    for metric in metrics:
        found = question.measured(results, metric)
        said = verdict(found, metric)
        shown = f"{found.mean:+.3f} ± {found.half_width:.3f}"
        shown = f"{shown} **{said}**" if said else shown
        cells.append("" if said == "not measured" else shown)
    if not any(cells):
        return None
    return [str(len({seed for seed, _ in question.rests_on(results)})), *cells]


def _named(metrics: Sequence[str]) -> list[str]:
    return [METRICS[metric] for metric in metrics]


def learning_rates(results: Sequence[Result]) -> str:
    """What comes of BatchTopK by learning rate and decay, best explained variance first."""
    metrics = metrics_of(results)
    best_first = sorted(results, key=lambda each: -each["explained_variance"])
    rows = [
        [
            f"{each['lr']:g}",
            f"{each['decay']:g}",
            *(f"{each[metric]:.3f}" for metric in metrics),
        ]
        for each in best_first
    ]
    return markdown_table(["learning rate", "decay", *_named(metrics)], rows)


def published_table(size: Size, results: Sequence[Result]) -> str:
    """SAELens's architectures in the published order, on their curves where L0 is k."""
    (k, *_), rows = size.ks, []
    for name in PUBLISHED["f1"]:
        ours = [each for each in results if (each["method"], each["k"]) == (name, k)]
        if not ours:
            continue
        l0 = _at_l0(ours, k, "l0")
        cells = [str(sum(map(isfinite, l0))), str(Interval.of(l0))]
        for metric, published in PUBLISHED.items():
            cells += [f"{published[name]:.3f}", str(Interval.of(_at_l0(ours, k, metric)))]
        rows.append([name, *cells])
    head = [f"{METRICS[metric]}{of}" for metric in PUBLISHED for of in (", published", " here")]
    return markdown_table(["", "seeds", "L0 here", *head], rows)


def _at_l0(results: Sequence[Result], l0: float, metric: str) -> list[float]:
    """A metric of one method by seeds where its L0 is as wanted, NaN if it comes to no such."""
    found = []
    for seed in sorted({each["seed"] for each in results}):
        ours = [each for each in results if each["seed"] == seed]
        curve = sorted(ours, key=lambda each: each["strength"])
        points = [(each["l0"], each[metric]) for each in curve]
        found.append(interpolate(points, l0) if len(points) > 1 else points[0][1])
    return found


def methods_table(size: Size, results: Sequence[Result]) -> str:
    """Every method at every strength and sparsity."""
    metrics, rows = metrics_of(results), []
    for k in size.ks:
        for method in METHODS.values():
            for strength in sorted(method.strengths):
                chosen = [
                    each
                    for each in results
                    if (each["method"], each["strength"], each["k"])
                    == (method.name, strength, k)
                ]
                if chosen:
                    cells = [
                        str(Interval.of([each[metric] for each in chosen]))
                        for metric in metrics
                    ]
                    about = [str(k), label(method.name, strength), str(len(chosen))]
                    rows.append([*about, *cells])
    return markdown_table(["k", "", "seeds", *_named(metrics)], rows)
