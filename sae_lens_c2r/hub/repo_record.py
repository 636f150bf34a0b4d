"""The records of a repository's SAEs, as they are published and a card shows them.

A repository keeps them as `sae-lens-c2r.json`, of which later uploads write a card of all its
SAEs. Nothing here is typed by hand, and nothing names a place on this machine.
"""

import json
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json
from sae_lens.constants import SAE_CFG_FILENAME

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.hub.rules import is_plain, keep_plain
from sae_lens_c2r.releases.model import FACTS, check_ids
from sae_lens_c2r.saes.record import FORMAT, RECORD, Evaluation, SAERecord, parsed
from sae_lens_c2r.saes.sae_ref import SAERef

# Of a record, what may be published once it is plain.
_PUBLISHED = {
    *("weights_sha256", "config_sha256", "file_sha256", "architecture", "trained_as"),
    *("d_in", "d_sae", "dtype", "options", "model_class", "hook_name", "context_size"),
    *("steps", "samples", "seconds", "device", "versions", "effective_coefficients"),
}


class RepoRecord(BaseModel):
    """The content of `sae-lens-c2r.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    format: Literal[2] = FORMAT
    repo_id: str
    description: str | None = None
    license: str | None = None
    base_models: list[str] = []  # that they encode, as the Hub calls them
    datasets: list[str] = []
    saes: Annotated[dict[str, SAERecord], Field(min_length=1)]

    @classmethod
    def read(cls, content: str | bytes) -> "RepoRecord":
        """Read what an earlier upload has left, unless it is of a later format."""
        name = Path(FACTS)
        try:
            values = from_json(content, allow_inf_nan=False)
        except ValueError as error:
            raise UserError(name, "be JSON", more=one_line(error)) from None
        return parsed(values, cls, name, of="upload")

    def joined(self, later: "RepoRecord", there: Collection[str] | None = None) -> "RepoRecord":
        """Join what is known of all SAEs that are there; of two records, the later counts."""
        kept = {
            sae_id: sae
            for sae_id, sae in self.saes.items()
            if there is None or f"{sae_id}/{SAE_CFG_FILENAME}" in there
        }
        saes = {**kept, **later.saes}
        for sae_id, old in kept.items():
            new = saes[sae_id]
            if _computes_as(new, old):  # what was measured still holds
                held = old.evaluations.keys() - set(new.outdated)
                evaluations = {key: old.evaluations[key] for key in held} | new.evaluations
                saes[sae_id] = new.model_copy(update={"evaluations": evaluations})
        before, now = self.saes.values(), saes.values()
        gone_models = {sae.model for sae in before} - {sae.model for sae in now}
        gone_texts = {sae.dataset for sae in before} - {sae.dataset for sae in now}
        return RepoRecord(
            repo_id=later.repo_id,
            description=later.description or self.description,
            license=later.license or self.license,
            base_models=sorted({*self.base_models} - gone_models | {*later.base_models}),
            datasets=sorted({*self.datasets} - gone_texts | {*later.datasets}),
            saes=dict(sorted(saes.items())),  # as the file has them, and so every card
        )

    def to_json(self) -> str:
        """Return the file's content."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        return json.dumps({"format": FORMAT, **content}, indent=1, sort_keys=True) + "\n"


def _computes_as(now: SAERecord, before: SAERecord) -> bool:
    """Whether two records are of one SAE. Earlier ones know its file's hash and its options."""
    of = ("file_sha256", "architecture")
    if before.config_sha256 is not None:
        of = ("weights_sha256", "config_sha256")
    # Options that only one has are the defaults of a later version.
    alike = {**before.options, **now.options} == {**now.options, **before.options}
    return alike and all(getattr(now, name) == getattr(before, name) for name in of)


def published(
    record: SAERecord, *, base_model: str | None = None, of_disk: Collection[str] = ()
) -> SAERecord:
    """The record of an SAE without what may not be published."""
    of_hub = {key: record.source.get(key) for key in ("hub_id", "dataset")}
    of_hub = {key: None if name in of_disk else name for key, name in of_hub.items()}
    model = base_model or of_hub["hub_id"] or record.model_name
    known = {
        **record.model_dump(include=_PUBLISHED),
        "model": model,
        "model_name": record.model_name if record.model_name != model else None,
        "dataset": of_hub["dataset"] or record.dataset,
        "trained_together": record.n_together or None,
        "outdated": record.outdated or None,
    }
    evaluations = {
        name: _evaluation(each) for name, each in record.evaluations.items() if is_plain(name)
    }
    kept = {**keep_plain(known), "evaluations": evaluations}
    if record.started_from is not None:
        kept["started_from"] = _started_from(record.started_from)
    return parsed({"format": FORMAT, **kept}, SAERecord, Path(RECORD), of="train")


def _started_from(start: SAERef) -> dict[str, Any]:
    """Keep the hashes of the SAE that training started from, and its place on the Hub."""
    kept: dict[str, Any] = keep_plain({"license": start.license, "sha256": start.sha256})
    if start.repo is not None and is_plain(start.repo):
        kept |= keep_plain({"repo": start.repo, "revision": start.revision})
        with suppress(UserError):  # it is no folder on the Hub
            check_ids([start.sae_id or ""])
            kept["sae_id"] = start.sae_id
    return kept


def _evaluation(measured: Evaluation) -> dict[str, Any]:
    """Keep an evaluation, without the names of local models and texts."""
    # The path and the seconds are left out.
    known = measured.model_dump(include={"model", "text", "settings", "device", "versions"})
    for key in ("model", "text"):
        if not is_plain(known[key]):
            known[key] = f"a {key} that is not public"
    metrics = {key: float(value) for key, value in measured.metrics.items() if is_plain(key)}
    return {**keep_plain(known), "metrics": metrics}
