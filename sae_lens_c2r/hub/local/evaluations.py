"""The measurements of an SAE: what `evaluation.json` says of it, and what its weights say."""

from collections.abc import Callable, Mapping
from pathlib import Path

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.versions import package_versions
from sae_lens_c2r.evaluation.catalog import WEIGHTS
from sae_lens_c2r.evaluation.hashing import config_sha256, weights_sha256
from sae_lens_c2r.evaluation.report import REPORT_FILE, Evaluation, read_report, weights_metrics
from sae_lens_c2r.hub.leaks import refuse_secrets
from sae_lens_c2r.hub.local.collect import LocalSAE
from sae_lens_c2r.hub.submission import Submission
from sae_lens_c2r.inspection.measures import inspect_sae
from sae_lens_c2r.saes.sae_ref import SAERef

_FOLDER = "evaluation"
Identity = tuple[str, str]  # of the weights, and of the config


def known_evaluations(
    submission: Submission, tell: Callable[[str], None]
) -> dict[Identity, dict[str, Evaluation]]:
    """What `sae-lens-c2r evaluate` has measured.

    Args:
        submission: The SAEs, and their `evaluation.json`. Without one, it is looked for where
            `evaluate` may have left it: in the folders of SAEs, in a folder `evaluation` in or
            beside them, and, if it can be read, in `evaluation` here.
        tell: Told why that one cannot be read.

    Returns:
        Evaluations by name, by which SAE they are of.

    Raises:
        UserError: If a file cannot be read, or two disagree.
    """
    if submission.evaluation is not None:
        return _read([submission.evaluation])
    here = Path(_FOLDER, REPORT_FILE)
    try:
        known = _read([here] if here.is_file() else [])
    except UserError as error:
        tell(f"Not looked at: {error}")
        known = {}
    paths = [] if isinstance(submission.saes, Mapping) else submission.saes
    folders = [
        f for path in paths for f in (path, path / _FOLDER, path.resolve().parent / _FOLDER)
    ]
    files = [folder / REPORT_FILE for folder in folders if (folder / REPORT_FILE).is_file()]
    return {**known, **_read(list(dict.fromkeys(file.resolve() for file in files)))}


def _read(files: list[Path]) -> dict[Identity, dict[str, Evaluation]]:
    found: dict[Identity, dict[str, Evaluation]] = {}
    for path in files:
        refuse_secrets(path, path.read_bytes())
        for sae in read_report(path).saes:
            of_sae = found.setdefault((sae.weights_sha256, sae.config_sha256), {})
            for name, evaluation in sae.evaluations.items():
                before = of_sae.setdefault(name, evaluation)
                if before.metrics != evaluation.metrics:
                    raise UserError(
                        f"{path} should not disagree with another {REPORT_FILE}. Found other "
                        f"numbers of {name} for {sae.name}."
                    )
    return found


def evaluations_of(
    sae: LocalSAE, known: Mapping[Identity, dict[str, Evaluation]]
) -> dict[str, Evaluation]:
    """The evaluations of an SAE; if nobody has measured its weights, they are now."""
    loaded = SAERef(folder=sae.folder).load_for_inference("cpu")
    found = known.get((weights_sha256(loaded), config_sha256(loaded.cfg)), {})
    if WEIGHTS in found:
        return found
    metrics = weights_metrics(inspect_sae(loaded, sae.sae_id))
    versions = package_versions("sae-lens-c2r", "sae-lens", "torch")
    now = Evaluation(metrics=metrics, versions=versions, device="cpu")
    return {**found, WEIGHTS: now}
