"""The evaluation of an SAE against the known features that it was trained on."""

import json
from pathlib import Path
from typing import Any

import torch
from sae_lens import SAE, __version__
from sae_lens.synthetic import SyntheticModel

from sae_lens_c2r.analysis.recovery import feature_recovery
from sae_lens_c2r.evaluation.features import features_config, record_of_features
from sae_lens_c2r.evaluation.tasks import Task


def run_known_features(task: Task, sae: SAE[Any], result: Path) -> None:
    """Evaluate an SAE, and write what is found in the form of SAEBench's files."""
    record = record_of_features(task.source)
    assert record is not None, "seen when the task was planned"
    asked, device = task.about.asked, task.about.device
    model = SyntheticModel.load_from_source(features_config(record, device), device=device)
    settings = asked.settings
    torch.manual_seed(settings["seed"])
    measures = feature_recovery(
        sae, model, samples=settings["samples"], batch_size=settings["batch_size"]
    )
    content = {
        "eval_type_id": asked.evaluation,
        "eval_config": settings,
        "eval_result_metrics": measures,
        "sae_lens_version": __version__,
    }
    result.write_text(json.dumps(content), encoding="utf-8")
