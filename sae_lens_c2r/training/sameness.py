"""The settings that two trainings have to share for one to stand for the other."""

import json
from typing import Any

from sae_lens_c2r.training.configs import K_ANNEAL_STEPS
from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.plan_checks import NORM_MULTIPLE

WITHOUT_EFFECT = ("logger", "prefetch_llm_batches")  # on what is trained


def settings_of(plan: Plan, sae_ids: list[str]) -> dict[str, Any]:
    """What a resumed run has to share with the one before it."""
    saes = {
        sae_id: {**plan.saes[sae_id].to_dict(), "seed": plan.seeds[sae_id]}
        for sae_id in sae_ids
    }
    for config in saes.values():
        del config["device"], config["metadata"]  # where it runs, and what the run adds
    for sae_id in sae_ids:
        if sae_id in plan.starts:  # by its content, wherever it lies by now
            saes[sae_id]["init"] = plan.starts[sae_id].sha256
        if sae_id in plan.k_anneal_steps:
            saes[sae_id][K_ANNEAL_STEPS] = plan.k_anneal_steps[sae_id]
    source = plan.release.source.model_dump(mode="json")
    runner = {k: v for k, v in plan.runner.items() if k not in WITHOUT_EFFECT}
    if plan.matmul_precision is not None:
        runner["matmul_precision"] = plan.matmul_precision
    if plan.norm_multiple is not None:
        runner[NORM_MULTIPLE] = plan.norm_multiple
    settings = {"source": source, "runner": runner, "saes": saes}
    of_json: dict[str, Any] = json.loads(json.dumps(settings))
    return of_json


def difference(held: dict[str, Any], planned: dict[str, Any], key: str = "") -> str | None:
    """The first value of a plan's that is not what is held already.

    Returns:
        A sentence that names it with both values, or `None`.
    """
    for name in {**planned, **held}:
        before, now = held.get(name), planned.get(name)
        if isinstance(before, dict) and isinstance(now, dict):
            found = difference(before, now, f"{key}{name}.")
            if found is not None:
                return found
        elif before != now:
            return f"Found `{key}{name} = {now!r}`, and {before!r} there."
    return None
