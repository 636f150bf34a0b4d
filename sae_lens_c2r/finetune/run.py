"""Fine-tuning from end to end: what SAEs are, training, what they have become, the report."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import read_object, write_json, write_text
from sae_lens_c2r.finetune.release import (
    READING,
    Subject,
    finetuning_release,
    id_of,
    read_subject,
)
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.comparison import Comparison, compare
from sae_lens_c2r.inspection.measures import SAEReport, cosine_summary, measure
from sae_lens_c2r.inspection.report import report_html
from sae_lens_c2r.penalties.precision import unit_rows
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.output_dir import check_out
from sae_lens_c2r.training.plan import Plan, make_plan, runner_config
from sae_lens_c2r.training.train import train

RESULTS, REPORT = "finetune.json", "report.html"


@dataclass
class Finetuning:
    """The fine-tuning of SAEs."""

    subjects: Mapping[str, Subject]  # by the ids that they are to have
    changes: Mapping[str, Any]  # in place of what they say, by dotted key of a release
    device: str
    source_of: Callable[[str], ActivationSource]  # to measure on, given the release's text
    tell: Callable[[str], None] = print
    _before: dict[str, SAEReport] = field(default_factory=dict)

    @classmethod
    def of(
        cls, saes: Sequence[SAERef], changes: Mapping[str, Any], **options: Any
    ) -> "Finetuning":
        """Load SAEs, and read what they say; a UserError if one cannot be loaded."""
        if not saes:
            raise UserError("`SAE...` should name an SAE to train on. Found none.")
        subjects: dict[str, Subject] = {}
        for ref in saes:
            name = id_of(ref)
            free = (each for each in chain([name], (f"{name}-{n}" for n in count(2))))
            sae_id = next(each for each in free if each not in subjects)
            subjects[sae_id] = read_subject(ref, changes)
        return cls(subjects, changes, **options)

    def check_out(self, out: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        """Raise, before any work, what keeps the SAEs from being trained into a folder."""
        if not overwrite:
            _check_results(out, self.subjects)
        check_out(self.subjects, out, resume=resume)

    def plan(self) -> Plan:
        """Plan the training. The L0 of SAEs that do not say theirs is measured for it."""
        unsaid = [sae_id for sae_id, subject in self.subjects.items() if not subject.says_k]
        if not unsaid or "sae.k" in self.changes:
            return self._plan({})
        for sae_id in unsaid:
            self.tell(f"{sae_id} does not say its L0: it is measured.")
        # What `k` is does not matter for the tokens that they are read on.
        self._measure_before(self._plan(dict.fromkeys(unsaid, 1.0)))
        return self._plan({sae_id: self._before[sae_id].metrics()["l0"] for sae_id in unsaid})

    def run(
        self, plan: Plan, out: Path, **how: Any
    ) -> tuple[list[SAEReport], list[Comparison]]:
        """Train a plan of the release, as `train` does, and write what that changed."""
        self._measure_before(plan)  # what cannot be measured is found before hours of training
        train(plan, out, log=self.tell, **how)
        source = self._source(plan)
        reports, comparisons, results = [], [], {}
        for sae_id, before in self._before.items():
            sae: SAE[Any] = SAE.load_from_disk(out / sae_id, device=self.device)
            after = self._measure(sae, plan, sae_id, _finetuned(sae_id), source)
            original = self._load(sae_id)
            kept = cosine_summary(row_cosines(sae.W_dec, original.W_dec))
            after = replace(after, of_training=kept)
            text = source.activations(sae, after.name)
            comparisons.append(compare(original, sae, text, reports=(before, after)))
            reports += [before, after]
            metrics = {"before": before.metrics(), "after": after.metrics()}
            results[sae_id] = {**metrics, **comparisons[-1].summary()}
        write_json(out / RESULTS, results)
        title = "SAEs, before and after fine-tuning"
        html = report_html(reports, comparisons, title=title, made_by="sae-lens-c2r finetune")
        write_text(out / REPORT, html)
        return reports, comparisons

    def _plan(self, l0s: Mapping[str, float]) -> Plan:
        release = finetuning_release(self.subjects, self.changes, l0s=l0s)
        return make_plan(release, device=self.device)

    def _source(self, plan: Plan) -> ActivationSource:
        """The text. One for each time: it holds the model, of which training needs one, too."""
        assert plan.release.language_model is not None, "as `finetuning_release` wrote it"
        return self.source_of(plan.release.language_model.dataset)

    def _load(self, sae_id: str) -> SAE[Any]:
        return self.subjects[sae_id].ref.pin()[1].to(self.device)

    def _measure_before(self, plan: Plan) -> None:
        if self._before:
            return
        source = self._source(plan)
        for sae_id in self.subjects:
            sae = self._load(sae_id)
            self._before[sae_id] = self._measure(sae, plan, sae_id, sae_id, source)

    def _measure(
        self, sae: SAE[Any], plan: Plan, sae_id: str, name: str, source: ActivationSource
    ) -> SAEReport:
        """Measure an SAE on the tokens that a plan trains on, whatever it says of itself."""
        self.tell(f"Measuring {name}")
        read_as_planned(sae, plan, sae_id)
        return measure(sae, name, source.activations(sae, name))


def read_as_planned(sae: SAE[Any], plan: Plan, sae_id: str) -> None:
    """Have an SAE read, where it is measured, the model and the tokens of a plan."""
    config: Any = runner_config(plan, sae_ids=[sae_id])
    for key in (*READING, "context_size", "model_name"):
        sae.cfg.metadata[key] = getattr(config, key)
    sae.cfg.metadata["hook_name"] = config.hook_names_per_sae[sae_id]
    sae.cfg.metadata["hook_head_index"] = config.hook_head_indices_per_sae[sae_id]


@torch.no_grad()
def row_cosines(W_dec: Tensor, before: Tensor) -> Tensor:
    """The cosine of each decoder row with the same one before."""
    return (unit_rows(W_dec.float()) * unit_rows(before.float())).sum(dim=-1).clamp(-1, 1)


def _finetuned(sae_id: str) -> str:
    """The name of a fine-tuned SAE in the report."""
    return f"{sae_id}, fine-tuned"


def _check_results(out: Path, sae_ids: Collection[str]) -> None:
    """Raise where there are numbers, or a report, of other SAEs than these."""
    results, report = out / RESULTS, out / REPORT
    held = list(read_object(results)) if results.is_file() else []
    wrong = results if not set(held) <= set(sae_ids) else None
    if report.is_file() and wrong is None:
        html = report.read_text(encoding="utf-8", errors="replace")
        if not held or any(_finetuned(sae_id) not in html for sae_id in held):
            wrong = report
    if wrong is not None:
        raise UserError(
            f"`out` should have no {wrong.name} of anything else than these SAEs, or "
            f"`--overwrite` be given. Found {wrong}."
        )
