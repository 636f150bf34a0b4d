"""SAEs that are ready to be published: checked, redacted, and seen to load in plain SAELens."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE
from sae_lens.constants import SAE_CFG_FILENAME, SAE_WEIGHTS_FILENAME
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.report import Evaluation
from sae_lens_c2r.hub.card.facts import SAEFacts
from sae_lens_c2r.hub.local.check_files import check_files
from sae_lens_c2r.hub.local.collect import LocalSAE
from sae_lens_c2r.hub.local.evaluations import Identity, evaluations_of
from sae_lens_c2r.hub.local.redact import redact
from sae_lens_c2r.hub.local.sae_facts import facts_of
from sae_lens_c2r.hub.remote.difference import PlannedFile
from sae_lens_c2r.saes.probe import contributions, encodes_alike, probe_inputs
from sae_lens_c2r.saes.saelens_alone import encode_in_saelens_alone


@dataclass(frozen=True)
class StagedSAE:
    """An SAE in the form in which it is published.

    Args:
        sae_id: Its folder on the Hub.
        files: Its config, redacted, and its weights.
        removed: The keys that were removed from its config.
        facts: What its card says.
        inputs: A batch to encode, shape ``[batch, d_in]``.
    """

    sae_id: str
    files: tuple[PlannedFile, PlannedFile]
    removed: list[str]
    facts: SAEFacts
    inputs: Tensor


@dataclass(frozen=True)
class PreparedSAE(StagedSAE):
    """An SAE that was seen to load in plain SAELens.

    Args:
        feature_acts: What that encodes the inputs as, shape ``[batch, d_sae]``, sparse.
    """

    feature_acts: Tensor


def prepare_saes(
    saes: Sequence[LocalSAE],
    *,
    staged: Path,
    evaluations: Mapping[Identity, dict[str, Evaluation]],
    base_model: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[PreparedSAE]:
    """SAEs as they are published: seen to load, and to encode as trained, in SAELens alone."""
    staged_saes = []
    for number, sae in enumerate(saes, start=1):
        tell(f"Checking {sae.sae_id}, {number} of {len(saes)}.")
        staged_saes.append(_stage(sae, staged / sae.sae_id, evaluations, base_model))
    tell("Loading them in SAELens alone.")
    encoded = encode_in_saelens_alone(
        [({"folder": str(staged / ready.sae_id)}, ready.inputs) for ready in staged_saes]
    )
    prepared = []
    for sae, ready, found in zip(saes, staged_saes, encoded, strict=True):
        _check_encoding(sae, staged / sae.sae_id, ready.inputs, found.feature_acts)
        prepared.append(PreparedSAE(**vars(ready), feature_acts=found.feature_acts.to_sparse()))
    return prepared


def _stage(
    sae: LocalSAE,
    folder: Path,
    evaluations: Mapping[Identity, dict[str, Evaluation]],
    base_model: str | None,
) -> StagedSAE:
    redacted = redact(check_files(sae))
    config = json.dumps(redacted.config, indent=1, allow_nan=False).encode() + b"\n"
    weights = sae.weights.resolve()
    folder.mkdir(parents=True)
    (folder / SAE_CFG_FILENAME).write_bytes(config)
    (folder / SAE_WEIGHTS_FILENAME).symlink_to(weights)
    files = (
        PlannedFile.of(f"{sae.sae_id}/{SAE_CFG_FILENAME}", config),
        PlannedFile.of(f"{sae.sae_id}/{SAE_WEIGHTS_FILENAME}", weights),
    )
    facts = facts_of(
        redacted.config,
        weights_sha256=files[1].sha256,
        record=sae.record,
        evaluations=evaluations_of(sae, evaluations),
        base_model=base_model,
    )
    return StagedSAE(sae.sae_id, files, redacted.removed, facts, probe_inputs(weights))


def _check_encoding(sae: LocalSAE, folder: Path, inputs: Tensor, feature_acts: Tensor) -> None:
    if feature_acts.shape != (len(inputs), feature_acts.shape[-1]):
        raise UserError(f"{sae.folder} should encode a batch. Found {feature_acts.shape}.")
    if not feature_acts.isfinite().all():
        raise UserError(f"{sae.folder} should encode as finite numbers. Found NaN or infinity.")
    if not feature_acts.any():
        raise UserError(
            f"{sae.folder} should have latents that fire. Found none that does, even for the "
            f"SAE's own decoder rows with norms of up to {inputs.norm(dim=1).max():,.0f}: is "
            "its threshold right?"
        )
    if sae.trained is None:
        return
    published: SAE[Any] = SAE.load_from_disk(folder)
    found = contributions(feature_acts, published)
    if not encodes_alike(found, sae.trained.to_dense(), dtype=published.dtype):
        share = torch.isclose(found, sae.trained.to_dense(), rtol=1e-3).float().mean()
        raise UserError(
            f"{sae.sae_id} should encode in its inference form as in its training form. "
            f"Found {share:.1%} of the activations alike."
        )
