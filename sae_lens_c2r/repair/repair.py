"""A repair from end to end: what the SAEs are, training, what they have become, the report."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any

from datasets import Dataset
from sae_lens import SAE
from sae_lens.registry import get_sae_training_class

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.reading import read_object
from sae_lens_c2r._support.writing import write_json, write_text
from sae_lens_c2r.inspection.findings import Finding, inspect
from sae_lens_c2r.inspection.reader import TextReader
from sae_lens_c2r.inspection.report import report_html
from sae_lens_c2r.repair.change import Change, MeasuredSAE
from sae_lens_c2r.repair.options import RepairOptions
from sae_lens_c2r.repair.read_as import ReadAs, read_as_planned
from sae_lens_c2r.repair.release import repair_release
from sae_lens_c2r.repair.subject import Subject, find_subject
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import Plan, make_plan
from sae_lens_c2r.training.train import train
from sae_lens_c2r.training.work_folder import check_out

RESULTS, REPORT = "repair.json", "report.html"


class Repair:
    """The repair of SAEs, from reading what they say to the report.

    Args:
        sources: Where they come from.
        options: What they do not say, and what is to be other than they say.
        device: Where to train and to measure.
        reader_of: Makes what reads the text that both are measured on, of the release's.
        tell: Shows the user a line.

    Raises:
        UserError: If there is none, or one cannot be loaded.
    """

    def __init__(
        self,
        sources: Sequence[SAERef],
        options: RepairOptions,
        *,
        device: str,
        reader_of: Callable[[str], TextReader],
        tell: Callable[[str], None] = print,
    ) -> None:
        if not sources:
            raise UserError("`SAE...` should name an SAE to repair. Found none.")
        self.subjects: dict[str, Subject] = {}
        for source in sources:
            subject, _ = find_subject(source, options)
            sae_id = _free_name(subject.sae_id, self.subjects)
            self.subjects[sae_id] = replace(subject, sae_id=sae_id)
        self._options, self._device, self._tell = options, device, tell
        self._reader_of = reader_of
        self._before: dict[str, Finding] = {}

    def check_out(self, out: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        """Raise what keeps the SAEs from being repaired into a folder, before any work.

        Args:
            out: The folder.
            resume: Whether to continue from the last checkpoint there.
            overwrite: Whether to replace the numbers and the report of another repair.

        Raises:
            UserError: If something else lies there.
            OSError: If it cannot be written into.
        """
        if not overwrite:
            _check_results(out, self.subjects)
        check_out(self.subjects, out, resume=resume)

    def plan(self) -> Plan:
        """What to train. The L0 of SAEs that do not say theirs is measured for it.

        Returns:
            The plan.
        """
        unsaid = [sae_id for sae_id, each in self.subjects.items() if self._needs_k(each)]
        if not unsaid:
            return self._plan({})
        for sae_id in unsaid:
            self._tell(f"{sae_id} does not say its L0: it is measured.")
        # What `k` is does not matter for the tokens that they are read on.
        before = self.before(self._plan(dict.fromkeys(unsaid, 1)))
        return self._plan({sae_id: max(1, round(_l0(before[sae_id]))) for sae_id in unsaid})

    def run(
        self, plan: Plan, out: Path, *, dataset: Dataset | None = None, **how: Any
    ) -> list[Change]:
        """Train a plan of the release, and write what that changed.

        Args:
            plan: The plan.
            out: Folder for the folders of the SAEs, the numbers and the report.
            dataset: Text in place of what the release names.
            how: As of `train`.

        Returns:
            Each SAE before and after.
        """
        before = self.before(plan)  # what cannot be measured is found before hours of training
        train(replace(plan, dataset=dataset), out, tell=self._tell, **how)
        repaired = {
            sae_id: ReadAs(folder=out / sae_id, label=_repaired(sae_id))
            for sae_id in self.subjects
        }
        after = self._measure(repaired, plan)
        changes = [self._change(sae_id, after[sae_id], out) for sae_id in self.subjects]
        write_json(out / RESULTS, {change.sae_id: asdict(change) for change in changes})
        findings = [found[sae_id] for sae_id in after for found in (before, after)]
        write_text(out / REPORT, report_html(findings))
        return changes

    def before(self, plan: Plan) -> Mapping[str, Finding]:
        """What was found of the SAEs as they are, on the tokens that a plan trains on."""
        if not self._before:
            sources = {sae_id: each.origin for sae_id, each in self.subjects.items()}
            self._before = self._measure(sources, plan)
        return self._before

    def _plan(self, ks: Mapping[str, float]) -> Plan:
        release = repair_release(list(self.subjects.values()), ks, self._options)
        return make_plan(release, device=self._device)

    def _needs_k(self, subject: Subject) -> bool:
        if self._options.k is not None or "sae.k" in self._options.changes:
            return False
        _, config_class = get_sae_training_class(subject.architecture)
        return hasattr(config_class, "k") and "k" not in subject.fields

    def _measure(self, sources: Mapping[str, SAERef], plan: Plan) -> dict[str, Finding]:
        """What was found of SAEs, each read as the one of its name in a plan is trained."""
        assert plan.release.language_model is not None, "as `repair_release` wrote it"
        # One at a time: it holds the model, of which training needs one as well.
        reader = self._reader_of(plan.release.language_model.dataset)
        problems: list[str] = []
        found = inspect(
            [read_as_planned(source, plan, sae_id) for sae_id, source in sources.items()],
            device=self._device,
            on_error=problems.append,
            reader=reader,
            tell=partial(_tell_measuring, self._tell),
        )
        if problems:
            raise UserError(problems[0])
        return dict(zip(sources, found, strict=True))

    def _change(self, sae_id: str, after: Finding, out: Path) -> Change:
        decoder = self.subjects[sae_id].origin.pin()[1].W_dec
        repaired: SAE[Any] = SAE.load_from_disk(out / sae_id)

        def measured(found: Finding, W_dec: Any) -> MeasuredSAE:
            assert found.behavior is not None, "measured on text"
            return MeasuredSAE.of(found.inspection, found.behavior, W_dec, decoder)

        return Change(
            sae_id, measured(self._before[sae_id], decoder), measured(after, repaired.W_dec)
        )


def _tell_measuring(tell: Callable[[str], None], which: str) -> None:
    tell(f"Measuring {which}")


def _l0(found: Finding) -> float:
    assert found.behavior is not None, "measured on text"
    return found.behavior.l0


def _repaired(sae_id: str) -> str:
    """What a repaired SAE is called in the report."""
    return f"{sae_id}, repaired"


def _free_name(name: str, taken: Container[str]) -> str:
    """A name that is not taken: itself, or else with a number."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


def _check_results(out: Path, sae_ids: Collection[str]) -> None:
    """Raise where there are numbers, or a report, of other SAEs than these."""
    results, report = out / RESULTS, out / REPORT
    held = list(read_object(results)) if results.is_file() else []
    wrong = results if not set(held) <= set(sae_ids) else None
    if report.is_file() and wrong is None:
        html = report.read_text(encoding="utf-8", errors="replace")
        if not held or any(_repaired(sae_id) not in html for sae_id in held):
            wrong = report
    if wrong is not None:
        raise UserError(
            f"`out` should have no {wrong.name} of anything else than this repair, or "
            f"`--overwrite` be given. Found {wrong}."
        )
