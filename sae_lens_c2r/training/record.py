"""What reproduces a training: `training.json`, beside the weights."""

import platform
import subprocess
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from sae_lens_c2r.training.plan import Plan

RECORD = "training.json"


def record_of(
    plan: Plan,
    sae_id: str,
    *,
    together: list[str],
    seconds: float,
    evaluation: dict[str, Any] | None,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """The record of one SAE.

    Args:
        plan: What was trained.
        sae_id: Which SAE of it.
        together: The SAEs that were trained beside it, and it.
        seconds: How long that took.
        evaluation: SAELens's evaluation against known features, if there are any.
        settings: All that another training would have to share with this one.

    Returns:
        The record, of JSON's types.
    """
    return {
        "release": plan.release.model_dump(mode="json"),
        "sae_id": sae_id,
        "settings": settings,
        "trained_together": together,
        "steps": plan.steps,
        "samples": plan.samples,
        "seconds": seconds,
        "samples_per_second": plan.samples / seconds,
        "evaluation": evaluation,
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **circumstances(plan.device),
    }


def circumstances(device: str) -> dict[str, Any]:
    """What the same settings may come out differently by: versions, and the machine.

    Args:
        device: Where it runs.

    Returns:
        The circumstances, of JSON's types.
    """
    packages = ("sae-lens-c2r", "sae-lens", "torch", "transformer-lens", "transformers")
    return {
        "device": _name_of_device(device),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in (*packages, "datasets")},
        "git_revision": _git_revision(),
    }


def _name_of_device(device: str) -> str:
    if torch.device(device).type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return device


def _git_revision() -> str | None:
    """The commit of the checkout that this code runs from, if it is one."""
    root = Path(__file__).parent.parent.parent
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True)
    except OSError:  # no git here
        return None
    return found.stdout.strip() or None
