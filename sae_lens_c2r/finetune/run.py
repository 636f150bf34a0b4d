"""Fine-tuning from end to end: measuring, training, measuring again, the report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sae_lens import SAE
from torch.nn.functional import cosine_similarity

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import read_object, write_json, write_text
from sae_lens_c2r.finetune.release import finetuning_release, read_subjects
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.comparison import Comparison, compare
from sae_lens_c2r.inspection.measures import SAEReport, cosine_summary, measure
from sae_lens_c2r.inspection.report import report_html
from sae_lens_c2r.models.reading import metadata_of
from sae_lens_c2r.models.text import read_text
from sae_lens_c2r.models.text_source import TextSource
from sae_lens_c2r.saes.origins import pin
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.output_dir import check_places, locked_out, unfinished_run
from sae_lens_c2r.training.plan import Plan, make_plan
from sae_lens_c2r.training.train import train

RESULTS, REPORT = "finetune.json", "report.html"
_TUNED = "{}, fine-tuned"  # the name of an SAE in the report


class Finetuning:
    """The fine-tuning of SAEs, with changes by the dotted keys of a release."""

    def __init__(
        self,
        saes: Sequence[SAERef],
        changes: Mapping[str, Any],
        *,
        device: str,
        text: str | None = None,  # to measure on, in place of what is trained on
        n_tokens: int = 100_000,  # of it
        tell: Callable[[str], None] = print,
    ) -> None:
        self._subjects = read_subjects(saes, changes, device)
        self._changes, self._device, self._tell = changes, device, tell
        self._text = TextSource(text) if text else None
        self._n_tokens = n_tokens
        self._before: dict[str, SAEReport] = {}

    def check_out(
        self,
        out: Path,
        *,
        resume: bool = False,
        overwrite: bool = False,
        look_only: bool = False,
    ) -> None:
        """Raise, before any work, what keeps the SAEs from being trained into a folder."""
        top, *places = [place.resolve() for place in (out, *map(out.joinpath, self._subjects))]
        for folder in filter(None, (each.ref.folder for each in self._subjects.values())):
            place = folder.resolve()
            if top == place or any(map(place.is_relative_to, places)):
                should = "be a folder apart from the SAEs to fine-tune"
                raise UserError("out", should, folder)
        results, report = out / RESULTS, out / REPORT
        held = read_object(results) if results.is_file() and not overwrite else {}
        wrong = results if held.keys() - self._subjects.keys() else None
        if report.is_file() and not overwrite and wrong is None:
            html = report.read_text(encoding="utf-8", errors="replace")
            if not held or any(_TUNED.format(sae_id) not in html for sae_id in held):
                wrong = report
        if wrong is not None:
            should = f"have no {wrong.name} of other SAEs, unless `--overwrite` is given"
            raise UserError("out", should, wrong)
        check_places(self._subjects, out)
        if not look_only:  # or training looks at the rest
            with locked_out(out):
                unfinished_run(out, self._tell, resume=resume)

    def plan(self) -> Plan:
        """Plan the training. The L0 of SAEs that do not say theirs is measured for it."""
        if self._text is not None:
            read_text(self._text)  # or what cannot be read would be told after the training
        unsaid = [sae_id for sae_id, each in self._subjects.items() if not each.says_k]
        if unsaid and "sae.k" not in self._changes:
            for sae_id in unsaid:
                self._tell(f"{sae_id} does not say its L0: measuring the L0.")
                self._subjects[sae_id].sae["k"] = 1  # whatever it is, the tokens are the same
            self._measure_before(self._plan())
            for sae_id in unsaid:
                l0 = self._before[sae_id].metrics()["l0"]
                self._subjects[sae_id].sae["k"] = max(1, round(l0))
        return self._plan()

    def run(
        self, plan: Plan, out: Path, **how: Any
    ) -> tuple[list[SAEReport], list[Comparison]]:
        """Train a plan of the release, as `train` does, and write what that changed."""
        train(plan, out, dry_run=True, log=lambda _: None, resume=how.get("resume", False))
        self._measure_before(plan)  # what cannot be measured is found before hours of training
        train(plan, out, log=self._tell, **how)
        source = self._source(plan)
        reports: list[SAEReport] = []
        comparisons, results = [], {}
        for sae_id, before in self._before.items():
            original, name = self._load(sae_id), _TUNED.format(sae_id)
            sae: SAE[Any] = SAE.load_from_disk(out / sae_id, device=self._device)
            self._tell(f"Measuring {name}")
            text = source.activations(sae, name)
            kept = cosine_similarity(sae.W_dec.float(), original.W_dec.float())
            after = replace(measure(sae, name, text), of_training=cosine_summary(kept))
            comparisons.append(compare(original, sae, text, reports=(before, after)))
            reports += [before, after]
            metrics = {"before": before.metrics(), "after": after.metrics()}
            results[sae_id] = {**metrics, **comparisons[-1].numbers}
        write_json(out / RESULTS, results)
        title = "SAEs, before and after fine-tuning"
        html = report_html(reports, comparisons, title=title, made_by="sae-lens-c2r finetune")
        write_text(out / REPORT, html)
        return reports, comparisons

    def _plan(self) -> Plan:
        return make_plan(finetuning_release(self._subjects, self._changes), device=self._device)

    def _source(self, plan: Plan) -> ActivationSource:
        """The text. One for each time: it holds the model, of which training needs one, too."""
        text = self._text or plan.release.language_model.text
        how: dict[str, Any] = {"device": self._device, "tell": self._tell}
        return ActivationSource(text, n_tokens=self._n_tokens, **how)

    def _load(self, sae_id: str) -> SAE[Any]:
        return pin(self._subjects[sae_id].ref)[1].to(self._device)

    def _measure_before(self, plan: Plan) -> None:
        """Measure SAEs on the tokens that a plan trains on, whatever they say of themselves."""
        if self._before:
            return
        source = self._source(plan)
        for sae_id in self._subjects:
            sae = self._load(sae_id)
            read_as_planned(sae, plan)
            self._tell(f"Measuring {sae_id}")
            self._before[sae_id] = measure(sae, sae_id, source.activations(sae, sae_id))


def read_as_planned(sae: SAE[Any], plan: Plan) -> None:
    """Have an SAE read the model and the tokens of a plan, as it will once it is trained."""
    for key, value in metadata_of(plan.settings()).items():
        sae.cfg.metadata[key] = value
