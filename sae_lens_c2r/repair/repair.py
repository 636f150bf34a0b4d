"""A repair from end to end: what the SAEs are, training, what they have become, the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset
from sae_lens import SAE
from sae_lens.registry import get_sae_training_class

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.writing import write_json, write_text
from sae_lens_c2r.inspection.findings import Finding, inspect
from sae_lens_c2r.inspection.reader import TextReader
from sae_lens_c2r.inspection.report import report_html
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.repair.change import Change, Measured
from sae_lens_c2r.repair.options import RepairOptions
from sae_lens_c2r.repair.release import repair_release
from sae_lens_c2r.repair.subject import Subject, find_subject
from sae_lens_c2r.saes.sources import Source
from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.train import train

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
        UserError: If there is none, one cannot be loaded, or two have the same name.
    """

    def __init__(
        self,
        sources: Sequence[Source],
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
            if subject.sae_id in self.subjects:
                raise UserError(
                    f"`SAE...` should have names that differ. Found {subject.sae_id} twice."
                )
            self.subjects[subject.sae_id] = subject
        self._options, self._device, self._tell = options, device, tell
        self._reader_of = reader_of
        self._before: dict[str, Finding] = {}

    def release(self) -> Release:
        """The release to train. The L0 of SAEs that do not say theirs is measured for it.

        Returns:
            The release.
        """
        ks: dict[str, float] = {}
        for sae_id, subject in self.subjects.items():
            if _needs_k(subject) and self._options.k is None:
                self._tell(f"{sae_id} does not say its L0: it is measured.")
                behavior = self.before()[sae_id].behavior
                assert behavior is not None, "measured on text"
                ks[sae_id] = max(1, round(behavior.l0))
        return repair_release(list(self.subjects.values()), ks, self._options)

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
        self.before()  # what cannot be measured is found before hours of training
        train(plan, out, dataset=dataset, tell=self._tell, **how)
        repaired = {
            sae_id: Source(f"{sae_id}, repaired", out / sae_id) for sae_id in self.subjects
        }
        after = self._measure(repaired)
        changes = [self._change(sae_id, after[sae_id], out) for sae_id in self.subjects]
        write_json(out / RESULTS, {change.sae_id: asdict(change) for change in changes})
        findings = [found[sae_id] for sae_id in after for found in (self.before(), after)]
        write_text(out / REPORT, report_html(findings))
        return changes

    def before(self) -> Mapping[str, Finding]:
        """What was found of the SAEs as they are."""
        if not self._before:
            sources = {i: each.source(self._options) for i, each in self.subjects.items()}
            self._before = self._measure(sources)
        return self._before

    def _measure(self, sources: Mapping[str, Source]) -> dict[str, Finding]:
        first = next(iter(self.subjects.values()))
        # One at a time: it holds the model, of which training needs one as well.
        reader = self._reader_of(first.language_model(self._options)["dataset"])
        problems: list[str] = []
        found = inspect(
            list(sources.values()),
            device=self._device,
            on_error=problems.append,
            reader=reader,
            tell=partial(_tell_measuring, self._tell),
        )
        if problems:
            raise UserError(problems[0])
        return dict(zip(sources, found, strict=True))

    def _change(self, sae_id: str, after: Finding, out: Path) -> Change:
        decoder = self.subjects[sae_id].origin.load().W_dec
        repaired: SAE[Any] = SAE.load_from_disk(out / sae_id)

        def measured(found: Finding, W_dec: Any) -> Measured:
            assert found.behavior is not None, "measured on text"
            return Measured.of(found.inspection, found.behavior, W_dec, decoder)

        return Change(
            sae_id, measured(self.before()[sae_id], decoder), measured(after, repaired.W_dec)
        )


def _tell_measuring(tell: Callable[[str], None], which: str) -> None:
    tell(f"Measuring {which}")


def _needs_k(subject: Subject) -> bool:
    _, config_class = get_sae_training_class(subject.architecture)
    return hasattr(config_class, "k") and "k" not in subject.fields
