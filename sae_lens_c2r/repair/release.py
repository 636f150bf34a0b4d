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
_WARM_UP, _DECAY = 20, 5  # parts of all steps: Adam begins without moments
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
        "description": f"SAEs that were trained before, trained on for {options.tokens:,} "
        "tokens with C2R.",
        "license": _license(subjects),
        "citation": ["jin2026c2r"],
        "repo_id": "sae-lens-c2r/repaired",
        "status": "planned",
        "language_model": {k: v for k, v in language_model.items() if v is not None},
        "runner": _shorter(runner, options),
        "sae": {},
        "grids": [
            {"id": subject.sae_id, "sae": _fields(subject, ks, options)} for subject in subjects
        ],
    }
    return release_of(document, changes=dict(options.changes))


def _shared(subjects: Sequence[Subject], should: str, options: RepairOptions) -> dict[str, Any]:
    first, *others = [subject.language_model(options) for subject in subjects]
    for subject, other in zip(subjects[1:], others, strict=True):
        for key, value in first.items():
            if other[key] != value:
                raise UserError(
                    f"`SAE...` should be {should}. Found `{key}` {value} of "
                    f"{subjects[0].origin.source.name}, and {other[key]} of "
                    f"{subject.origin.source.name}."
                )
    return first


def _license(subjects: Sequence[Subject]) -> str:
    """The SAEs' own licence; the Hub's word for one that is not known, or not one."""
    found = {subject.origin.license for subject in subjects}
    [license] = found if len(found) == 1 else [None]
    return license.lower() if license and " " not in license else "unknown"


def _shorter(runner: dict[str, Any], options: RepairOptions) -> dict[str, Any]:
    """How the SAEs were trained, for fewer steps."""
    default = MultiSAETrainingRunnerConfig
    lr = runner.get("lr", default.lr)
    batch_size = runner.get("train_batch_size_tokens", default.train_batch_size_tokens)
    steps = math.ceil(options.tokens / batch_size)
    return {
        **runner,
        "lr": options.lr or lr / SLOWER,
        "lr_warm_up_steps": steps // _WARM_UP,
        "lr_decay_steps": steps // _DECAY,
        "n_batches_for_norm_estimate": min(
            _ESTIMATED_BATCHES, runner.get("n_batches_for_norm_estimate", _ESTIMATED_BATCHES)
        ),
    }


def _fields(
    subject: Subject, ks: Mapping[str, float], options: RepairOptions
) -> dict[str, Any]:
    """What of an SAE's training is not what the SAE says by itself."""
    found: dict[str, Any] = {
        "architecture": subject.architecture,
        "init": subject.init,
        "normalize_activations": subject.normalize_activations,
    }
    k = options.k or ks.get(subject.sae_id)
    if k is not None:
        found["k"] = k
    if options.c2r_coefficient is not None:
        found["c2r_coefficient"] = options.c2r_coefficient
    return found
