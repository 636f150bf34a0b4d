"""SAELens's own `run_evals`, for models of any class that SAELens loads, and co-firing."""

import json
from pathlib import Path
from typing import Any

from sae_lens import SAE, __version__
from sae_lens.evals import get_eval_everything_config, run_evals
from sae_lens.training.activation_scaler import ActivationScaler

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import co_firing
from sae_lens_c2r.evaluation.catalog import CO_FIRING
from sae_lens_c2r.evaluation.tasks import Task
from sae_lens_c2r.inspection.activations import encode
from sae_lens_c2r.inspection.reader import reader_of
from sae_lens_c2r.offline.source import OFFLINE_MODEL

MOST_TOKENS = 100_000  # of which the activations are held, for co-firing


def run_sae_lens(task: Task, sae: SAE[Any], result: Path) -> None:
    """Evaluate an SAE, and write what SAELens and we find in the form of SAEBench's files.

    Raises:
        UserError: If there is no text, too little, or one that does not fit the model.
    """
    asked, about = task.about.asked, sae.cfg.metadata
    source = asked.text or about.dataset_path
    if not source:
        raise UserError("`text` should be given: the SAE does not say what it was trained on.")
    settings = asked.settings
    rows = settings["n_eval_sparsity_variance_batches"] * settings["batch_size_prompts"]
    n_tokens = min(rows * (about.context_size or 1), MOST_TOKENS)
    reader = reader_of(
        str(source), model=asked.model, n_tokens=n_tokens, device=task.about.device
    )
    model = reader.model_of(sae)
    store = reader.store_of(sae, store_batch_size_prompts=settings["batch_size_prompts"])
    config = get_eval_everything_config(**settings)
    # Its head is random: nobody trained all-MiniLM-L6-v2 to predict a token.
    config.compute_kl = config.compute_ce_loss = asked.model != OFFLINE_MODEL
    special = about.exclude_special_tokens or False
    try:
        metrics, _ = run_evals(
            sae, store, model, ActivationScaler(), config, exclude_special_tokens=special
        )
    except StopIteration:
        raise UserError(
            f"`text` should fill {settings['batch_size_prompts']} rows of "
            f"{store.context_size} tokens. {source} does not."
        ) from None
    acts = (acts for _, acts in encode(sae, reader.activations(sae, task.about.name)))
    content = {
        "eval_type_id": asked.evaluation,
        "eval_config": settings,
        "eval_result_metrics": {**metrics, CO_FIRING: co_firing(acts).summary()},
        "sae_lens_version": __version__,
    }
    result.write_text(json.dumps(content), encoding="utf-8")
