"""The release that a repair trains: made in memory, of what the SAEs say of themselves."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sae_lens import MultiSAETrainingRunnerConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.files import release_of
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.repair.options import RepairOptions
from sae_lens_c2r.repair.subject import Subject

# An SAE that is trained on as fast as it was trained forgets more of what its latents were.
SLOWER = 3
# Parts of all steps: Adam begins without moments.
_SCHEDULES = {"lr_warm_up_steps": 20, "lr_decay_steps": 5}
_ESTIMATED_BATCHES = 20  # of the stream, which is short; SAELens takes 1,000


def repair_release(
    subjects: Sequence[Subject], ks: Mapping[str, float], options: RepairOptions
) -> Release:
    """A release of SAEs that start from SAEs.

    Args:
        subjects: The SAEs, of one model, hook and text.
        ks: The L0 that was measured of those that do not say theirs, by their ids.
        options: What else was said.

    Returns:
        The release.

    Raises:
        UserError: If the SAEs cannot be trained together, or one does not say what it is of.
        ReleaseError: If there is no such release.
    """
    language_model = _shared(subjects, "of one model, hook and text", options)
    runner = subjects[0].runner
    if any(subject.runner != runner for subject in subjects) and options.lr is None:
        raise UserError("`SAE...` should have been trained alike, or be repaired in turn.")
    document = {
        "name": "repaired",
        "description": f"SAEs that were trained before, trained on for {_tokens(options)} "
        "tokens with C2R.",
        "license": _license(subjects),
        "repo_id": "sae-lens-c2r/repaired",
        "status": "planned",
        "language_model": {k: v for k, v in language_model.items() if v is not None},
        "runner": _slower(runner, options),
        "sae": {},
        "grids": [
            {"id": subject.sae_id, "sae": _fields(subject, ks, options)} for subject in subjects
        ],
    }
    return _with_schedules(release_of(document, changes=dict(options.changes)))


def _shared(subjects: Sequence[Subject], should: str, options: RepairOptions) -> dict[str, Any]:
    first, *others = [subject.language_model(options) for subject in subjects]
    for subject, other in zip(subjects[1:], others, strict=True):
        for key, value in first.items():
            if other[key] != value:
                raise UserError(
                    f"`SAE...` should be {should}. Found `{key}` {value} of "
                    f"{subjects[0].origin.name}, and {other[key]} of "
                    f"{subject.origin.name}."
                )
    return first


def _license(subjects: Sequence[Subject]) -> str:
    """The SAEs' own licence; the Hub's word for one that is not known, or not one."""
    found = {subject.origin.license for subject in subjects}
    [license] = found if len(found) == 1 else [None]
    return license.lower() if license and " " not in license else "unknown"


def _tokens(options: RepairOptions) -> str:
    tokens = options.changes.get("language_model.training_tokens", options.tokens)
    return f"{tokens:,}" if isinstance(tokens, int) else str(tokens)


def _slower(runner: dict[str, Any], options: RepairOptions) -> dict[str, Any]:
    """How the SAEs were trained, at a lower learning rate and without its schedules."""
    lr = runner.get("lr", MultiSAETrainingRunnerConfig.lr) / SLOWER
    estimated = runner.get("n_batches_for_norm_estimate", _ESTIMATED_BATCHES)
    return {
        **{name: value for name, value in runner.items() if name not in _SCHEDULES},
        "lr": lr if options.lr is None else options.lr,
        "n_batches_for_norm_estimate": min(_ESTIMATED_BATCHES, estimated),
    }


def _with_schedules(release: Release) -> Release:
    """The release with schedules that fit its steps, where it does not say others."""
    assert release.language_model is not None, "as `repair_release` wrote it"
    default = MultiSAETrainingRunnerConfig.train_batch_size_tokens
    batch_size = release.runner.get("train_batch_size_tokens", default)
    if not isinstance(batch_size, int) or batch_size < 1:
        return release  # what it should be is said when a plan is made
    steps = math.ceil(release.language_model.training_tokens / batch_size)
    schedules = {name: steps // part for name, part in _SCHEDULES.items()}
    return release.model_copy(update={"runner": {**schedules, **release.runner}})


def _fields(
    subject: Subject, ks: Mapping[str, float], options: RepairOptions
) -> dict[str, Any]:
    """What of an SAE's training is not what the SAE says by itself."""
    found: dict[str, Any] = {
        "architecture": subject.architecture,
        "init": subject.init,
        "normalize_activations": subject.normalize_activations,
    }
    k = ks.get(subject.sae_id) if options.k is None else options.k
    if k is not None:  # what the command line gives may be 32.0, where TopK has 32
        found["k"] = int(k) if k == int(k) else k
    if options.c2r_coefficient is not None:
        found["c2r_coefficient"] = options.c2r_coefficient
    return found
