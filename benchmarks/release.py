"""Train one of our releases and keep what its cards need: everything but the weights.

    python -m benchmarks.release minilm-layer-3 --device cuda

Stopped and started again, it goes on. The results have every SAE's metrics, the SHA-256 of its
files and what it was trained with; the weights are in the folder that `--out` names.
"""

import hashlib
import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import environment
from sae_lens_c2r.inspection.behavior import Behavior
from sae_lens_c2r.inspection.findings import Finding, inspect
from sae_lens_c2r.inspection.plots import (
    consolidation,
    cosine_distributions,
    firing_frequencies,
)
from sae_lens_c2r.inspection.reader import reader_of
from sae_lens_c2r.inspection.report import report_html
from sae_lens_c2r.releases.files import find_release, parse_changes, read_release
from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.saes.sources import find_sources
from sae_lens_c2r.training.plan import Plan, make_plan
from sae_lens_c2r.training.record import RECORD
from sae_lens_c2r.training.run import train

RESULTS = Path("benchmarks/results/releases")
TOKENS = 100_000


def main() -> None:
    """Train what is missing, then measure all of it."""
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("release", help="a release of ours, or a YAML file")
    parser.add_argument("--out", type=Path, help="folder of the SAEs; saes/NAME by default")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--set", action="append", default=[], help="as of `train`")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()
    release = read_release(
        find_release(arguments.release), changes=parse_changes(arguments.set)
    )
    out = arguments.out or Path("saes") / release.name
    plan = make_plan(release, device=arguments.device)
    train(plan, out, resume=True)
    findings = look_at(plan, out, arguments.device)
    folder = arguments.results / release.name
    folder.mkdir(parents=True, exist_ok=True)
    results = {
        "environment": environment(arguments.device),
        "saes": {
            sae_id: kept(out / sae_id, finding)
            for sae_id, finding in zip(plan.saes, findings, strict=True)
        },
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    picture = cosine_distributions([each.inspection for each in findings])
    (folder / "max_cosines.svg").write_text(picture + "\n")
    (folder / "report.html").write_text(report_html(findings))
    behaviors = {each.inspection.name: each.behavior for each in findings if each.behavior}
    if behaviors:
        (folder / "frequencies.svg").write_text(firing_frequencies(behaviors) + "\n")
        (folder / "consolidation.svg").write_text(consolidation(behaviors) + "\n")
    print(f"{folder} has what was found.")


def look_at(plan: Plan, out: Path, device: str) -> list[Finding]:
    """Measure every SAE, on the text that it was trained on where there is one."""

    def fail(reason: str) -> None:
        raise SystemExit(reason)

    source = plan.release.source
    reader = None
    if isinstance(source, LanguageModel):
        reader = reader_of(source.dataset, model=None, n_tokens=TOKENS, device=device)
    sources = find_sources([str(out / sae_id) for sae_id in plan.saes], on_error=fail)
    return inspect(sources, device=device, on_error=fail, reader=reader, tell=print)


def kept(folder: Path, finding: Finding) -> dict[str, Any]:
    """What is kept of an SAE."""
    inspection = finding.inspection
    return {
        "composition": inspection.composition,
        "chance_composition": inspection.chance_composition,
        "pairs": inspection.pairs,
        "on_text": on_text(finding.behavior) if finding.behavior else None,
        "sha256": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.iterdir())
        },
        "training": json.loads((folder / RECORD).read_text()),
    }


def on_text(behavior: Behavior) -> dict[str, float]:
    """What an SAE does on text, in numbers."""
    pairs = behavior.absorption
    return {
        "tokens": behavior.n_tokens,
        "explained_variance": behavior.explained_variance,
        "l0": behavior.l0,
        "dead_latents": behavior.dead,
        "absorption_pairs": len(pairs),
        "condition_13_satisfied": int(pairs.satisfied.sum()),
    }


if __name__ == "__main__":
    main()
