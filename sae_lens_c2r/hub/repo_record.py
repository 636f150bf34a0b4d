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

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.allow_list import (
    OF_RECORD,
    OF_START,
    is_of_the_hub,
    keep,
    public_evaluation,
)
from sae_lens_c2r.releases.model import FACTS, check_ids
from sae_lens_c2r.saes.record import FORMAT, RECORD, SAERecord, parsed
from sae_lens_c2r.saes.sae_ref import SAERef

# The path of the result and the seconds are left out.
_OF_EVALUATIONS = {"model", "text", "settings", "device", "versions", "metrics"}


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
        """Read what an earlier upload has left."""
        return parsed(from_json(content, allow_inf_nan=False), cls, Path(FACTS), of="upload")

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
                evaluations = old.evaluations | new.evaluations
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
    """Whether two records are of one SAE, which then computes the same."""
    of = ("weights_sha256", "config_sha256")
    hashes = [getattr(before, name) for name in of]
    return None not in hashes and hashes == [getattr(now, name) for name in of]


def published(record: SAERecord, *, base_model: str | None = None) -> SAERecord:
    """The record of an SAE without what may not be published."""

    def of_the_hub(*names: Any) -> str | None:
        return next((name for name in names if is_of_the_hub(name, record.from_disk)), None)

    model = base_model or of_the_hub(record.source.get("hub_id"), record.model_name)
    loaded_as = of_the_hub(record.model_name)
    known = {
        **record.model_dump(),
        "model": model,
        "model_name": loaded_as if loaded_as != model else None,
        "dataset": of_the_hub(record.source.get("dataset"), record.dataset),
        "trained_together": record.n_together or None,
    }
    kept = keep({key: value for key, value in known.items() if value is not None}, OF_RECORD)
    evaluations = {
        name: public_evaluation(
            each.model_dump(include=_OF_EVALUATIONS), record.from_disk, known["dataset"]
        )
        for name, each in record.evaluations.items()
    }
    kept = {"format": FORMAT, **kept, "evaluations": evaluations}
    if record.started_from is not None:
        kept["started_from"] = _started_from(record.started_from)
    return parsed(kept, SAERecord, Path(RECORD), of="train")


def _started_from(start: SAERef) -> dict[str, Any]:
    """Keep the hashes of the SAE that training started from, and its place on the Hub."""
    known = {"license": start.license, "sha256": start.sha256}
    if start.repo is not None:
        known |= {"repo": start.repo, "revision": start.revision}
    kept = keep({key: value for key, value in known.items() if value is not None}, OF_START)
    if "repo" in kept:
        with suppress(UserError):  # it is no folder on the Hub
            check_ids([start.sae_id or ""])
            kept["sae_id"] = start.sae_id
    return kept
