"""How the numbers of a card were measured, and how its SAEs were trained, in sentences."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from sae_lens_c2r._support.words import counted
from sae_lens_c2r.evaluation.catalog import (
    CO_FIRING,
    HELD_OUT,
    KNOWN_FEATURES,
    SAE_LENS,
    TRAINING,
    WEIGHTS,
)
from sae_lens_c2r.hub.facts import Evaluation, RepoFacts, Training
from sae_lens_c2r.hub.tables import PENALTIES, card_numbers, code, text
from sae_lens_c2r.saes.sae_ref import SAERef

_TEXTS = {"python-documentation": "the documentation of Python's standard library"}
_OF_FEATURES = (
    "the features present are counted in each sample; MCC is the mean cosine of features and "
    "latents matched one to one; uniqueness is how many features some latent is the nearest "
    "to, by latents; precision, recall and F1 are of latents as detectors of those"
)
_OF_CHILDREN = (
    "Absorption by children is how much more often a parent's latent is silent beside a child "
    "than without, over the parents that were found: those with a latent of their own"
)
_ITS_OWN = "the text that it was trained on"


def how_measured(facts: RepoFacts) -> Iterator[str]:
    """Yield how each evaluation was made, a paragraph for the SAEs that share it."""
    # The keys of the inner mappings are sets in the order in which they were filled.
    found: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    titles: dict[str, dict[str, None]] = defaultdict(dict)
    for number in card_numbers(facts):
        name = number.column.evaluation
        found[name, _how_measured(name, number.evaluation)][number.sae_id] = None
        titles[name][number.column.title] = None
    for (name, said), sae_ids in sorted(found.items()):
        alone = sum(other == name for other, _ in found) == 1
        whose = "" if alone else f" ({', '.join(f'`{sae_id}`' for sae_id in sae_ids)})"
        yield f"**{', '.join(titles[name])}**{whose}: {said}"


def _how_measured(name: str, evaluation: Evaluation) -> str:
    if name == WEIGHTS:
        said = (
            "of the weights alone. Composition is the mean, over the latents, of the highest "
            "cosine with another latent's decoder row"
        )
        if "chance_composition" in evaluation.metrics:
            chance = f"{evaluation.metrics['chance_composition']:.3f}"
            said += f", about {chance} for random directions"
        said += "; pairs are of latents with a cosine above 0.9 and 0.7"
    elif name == KNOWN_FEATURES:
        asked = evaluation.settings
        drawn = "at the end of training, on samples"
        if "samples" in asked:
            drawn = f"on {asked['samples']:,} samples, from the seed {asked.get('seed')},"
        said = (
            f"SAELens's `eval_sae_on_synthetic_data` {drawn} of the features that it was "
            f"trained on; {_OF_FEATURES}"
        )
        if "absorption" in evaluation.metrics:
            said += f". {_OF_CHILDREN}"
    elif name == HELD_OUT:
        n_tokens = evaluation.settings.get("n_tokens") or 0
        said = (
            f"by the demo, on {n_tokens:,} tokens of {_text_of(evaluation.text or 'the text')} "
            "that were held out from training, without special ones. Dead latents fire on none "
            f"of them{_co_firing(evaluation.metrics)}"
        )
    elif name == TRAINING:
        said = (
            "counted by SAELens at the end of training: latents that had not fired for the "
            "steps of `dead_feature_window`"
        )
    else:
        by = "SAELens's `run_evals`" if name == SAE_LENS else f"SAEBench's `{name}`"
        said = f"{by} with {text(evaluation.model or 'the model of the SAE')}"
        if name == SAE_LENS:
            on = _text_of(evaluation.text or _ITS_OWN)
            said += f", on {on}"
        settings = ", ".join(
            f"`{code(f'{key} = {value}')}`"
            for key, value in sorted(evaluation.settings.items())
        )
        said += f"; {settings}" if settings else ""
        said += _co_firing(evaluation.metrics)
    return f"{said}.{_circumstances(evaluation.versions, evaluation.device)}"


def _co_firing(metrics: Mapping[str, float]) -> str:
    """Explain co-firing, which is ours, where it was measured beside SAELens's own."""
    if f"{CO_FIRING}.chance" not in metrics:
        return ""
    return (
        ". Co-firing is the mean, over the latents that fire, of the highest Jaccard with "
        "another one: of the tokens on which either fires, the share on which both do; by "
        "chance: if latents fire independently. Co-firing pairs have a Jaccard above 0.5, 0.7 "
        "and 0.9. Composition can fall while these stay"
    )


def _text_of(name: str) -> str:
    """Name a text, also one that has no page on the Hub."""
    return _TEXTS.get(name) or text(name)


def effective_coefficients(facts: RepoFacts) -> Iterator[str]:
    """Yield what the penalties' coefficients came to, a paragraph for each penalty."""
    for name, prefix in PENALTIES.items():
        found = {
            sae_id: sae.training.effective_coefficients[prefix]
            for sae_id, sae in facts.saes.items()
            if prefix in sae.training.effective_coefficients
        }
        if found:
            came_to = ", ".join(
                f"{value:.3g} for `{sae_id}`" for sae_id, value in found.items()
            )
            yield (
                f"The coefficient of {name} holds for the paper's setting. Rescaled to the "
                "batch size, width, input dimension and norm of the activations here it is "
                f"another number for the same strength, at the last step: {came_to}."
            )


def how_trained(facts: RepoFacts) -> Iterator[str]:
    """Yield how the SAEs were trained, a paragraph for those that share it."""
    found: dict[str, list[str]] = {}
    for sae_id, sae in facts.saes.items():
        found.setdefault(_trained(sae.training), []).append(sae_id)
    for said, sae_ids in found.items():
        whose = "" if len(found) == 1 else f"{', '.join(f'`{i}`' for i in sae_ids)}: "
        yield whose + said


def _trained(training: Training) -> str:
    parts = [_started_from(training.started_from)] if training.started_from else []
    if training.model or training.hook_name:
        model, hook_name = text(training.model or "?"), code(training.hook_name or "?")
        parts.append(f"activations of {model} at `{hook_name}`")
    if training.dataset:
        rows = f" in rows of {training.context_size:,} tokens" if training.context_size else ""
        parts.append(f"on {_text_of(training.dataset)}{rows}")
    if training.samples:
        unit = "tokens" if training.model else "samples of known features"
        steps = f" in {training.steps:,} steps" if training.steps else ""
        parts.append(f"{training.samples:,} {unit}{steps}")
    if training.seconds:
        parts.append(_duration(training.seconds, training.together))
    said = ", ".join(filter(None, parts)) or "nothing was recorded of the data"
    circumstances = _circumstances(training.versions, training.device)
    return f"{said[0].upper()}{said[1:]}.{circumstances}"


def _duration(seconds: float, together: int | None) -> str:
    if seconds >= 90 * 60:
        shown = f"{seconds / 3600:.1f} hours"
    elif seconds >= 60:
        shown = counted(seconds / 60, "minute")
    else:
        shown = counted(max(1, seconds), "second")
    return f"{shown} for {together} SAEs together" if together and together > 1 else shown


def _started_from(start: SAERef) -> str:
    """Name the SAE that another one started from, with its content and its licence."""
    whose = "started from another SAE"
    if start.repo:
        repo = f"[{text(start.repo)}](https://huggingface.co/{code(start.repo)})"
        at = f" at the commit {text(start.revision[:8])}" if start.revision else ""
        sae = f"`{code(start.sae_id)}`" if start.sae_id else "an SAE"
        whose = f"started from {sae} of {repo}{at}"
    files = (f"{text(name)} {text(digest)}" for name, digest in sorted(start.sha256.items()))
    about = [
        f"under {text(start.license)}" if start.license else "under a licence not known",
        *(f"SHA-256 of {file}" for file in files),
    ]
    return f"{whose} ({'; '.join(about)})"


def _circumstances(versions: Mapping[str, str], device: str | None) -> str:
    by = [_versions(versions)] if versions else []
    on = [f"on {text(device)}"] if device else []
    return f" By {', '.join([*by, *on])}." if by else f" O{on[0][1:]}." if on else ""


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{text(name)} {text(versions[name])}" for name in sorted(versions))
