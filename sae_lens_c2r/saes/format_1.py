"""Files of records as they were first written, in the format of today."""

from typing import Any

from sae_lens_c2r.analysis.metrics import final_metrics

_COUNTED = {"training", "held_out"}  # evaluations in which dead latents were counted


def in_this_format(content: dict[str, Any]) -> dict[str, Any]:
    """The content of `training.json`, `evaluation.json` or `sae-lens-c2r.json`."""
    if content.get("format", 1) != 1:
        return content
    saes = content.get("saes")
    if isinstance(saes, dict):
        content = {**content, "saes": {sae_id: _record(sae) for sae_id, sae in saes.items()}}
    elif isinstance(saes, list):
        content = {**content, "saes": [_record(sae) for sae in saes]}
    else:
        content = _record(content)
    return {**content, "format": 2}


def _record(sae: Any) -> Any:
    """A record of a training, of what was evaluated, or of what is on the Hub."""
    if not isinstance(sae, dict):
        return sae
    record = dict(sae)
    if isinstance(release := record.get("release"), dict):
        record |= {key: release.get(key) for key in ("description", "license", "repo_id")}
        record["release"] = release.get("name")
        record["source"] = release.get("language_model") or release.get("synthetic_model") or {}
    if isinstance(training := record.pop("training", None), dict):
        record |= {**training, "trained_together": training.get("together", [])}
        record["file_sha256"] = record.pop("weights_sha256", None)
    settings = record.get("settings") or {}
    fields_of_sae = settings.get("saes", {}).get(record.get("sae_id"), record)
    d_sae = fields_of_sae.get("d_sae")
    evaluations: dict[str, Any] = {}
    for name, evaluation in (record.get("evaluations") or {}).items():
        metrics = final_metrics(name, evaluation.get("metrics", {}))
        if name in _COUNTED:
            metrics = _with_shares(name, metrics, d_sae)
        evaluations[name] = {**evaluation, "metrics": metrics}
    by = {key: record[key] for key in ("device", "versions") if record.get(key)}
    if numbers := record.pop("evaluation", None):  # SAELens's of known features
        metrics = _with_shares("known_features", numbers, d_sae)
        evaluations["known_features"] = {"metrics": metrics, **by}
    if held_out := record.pop("held_out", None):
        metrics = _with_shares("held_out", held_out.get("metrics", {}), d_sae)
        read = {"n_tokens": held_out.get("n_tokens")}
        about = {"text": held_out.get("text"), "settings": read, **by}
        evaluations["held_out"] = {"metrics": metrics, **about}
    return {**record, "evaluations": evaluations}


def _with_shares(
    evaluation: str, numbers: dict[str, Any], d_sae: int | None
) -> dict[str, float]:
    """The metrics of an evaluation that counted dead latents, if it is known of how many."""
    kept = {key: numbers[key] for key in numbers if d_sae or key != "dead_latents"}
    return final_metrics(evaluation, kept, d_sae=d_sae)
