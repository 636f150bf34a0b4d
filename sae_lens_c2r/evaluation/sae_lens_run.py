"""SAELens's own `run_evals`, for models of any class that SAELens loads."""

import json
from importlib.metadata import version
from typing import Any

from sae_lens import SAE
from sae_lens.evals import get_eval_everything_config, run_evals
from sae_lens.load_model import load_model
from sae_lens.training.activation_scaler import ActivationScaler
from sae_lens.training.activations_store import ActivationsStore

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.request import Request
from sae_lens_c2r.inspection.text import read_text
from sae_lens_c2r.offline.source import OFFLINE_DATASET, OFFLINE_MODEL, offline_source


def run_sae_lens(request: Request, sae: SAE[Any]) -> None:
    """Evaluate an SAE, and write what SAELens finds in the form of SAEBench's files.

    Args:
        request: What to run.
        sae: The SAE.

    Raises:
        UserError: If there is no text, too little, or one that does not fit the model.
    """
    about = sae.cfg.metadata
    source = request.asked.text or about.dataset_path
    if not source:
        raise UserError("`text` should be given: the SAE does not say what it was trained on.")
    model_name = request.model
    if source != OFFLINE_DATASET:
        text = read_text(str(source))
    elif model_name == OFFLINE_MODEL:
        model_name, text = offline_source()
    else:
        raise UserError(
            f"`text` should not be {OFFLINE_DATASET} for {model_name}: it is cut into the "
            f"tokens of {OFFLINE_MODEL}."
        )
    model = load_model(
        about.model_class_name or "HookedTransformer",
        model_name,
        device=request.device,
        model_from_pretrained_kwargs=about.model_from_pretrained_kwargs or {},
        hook_names=[about.hook_name],
    )
    settings = request.asked.settings
    store = ActivationsStore.from_sae(
        model,
        sae,
        text,
        streaming=isinstance(text, str),
        store_batch_size_prompts=settings["batch_size_prompts"],
        device=request.device,
    )
    config = get_eval_everything_config(**settings)
    # Its head is random: nobody trained all-MiniLM-L6-v2 to predict a token.
    config.compute_kl = config.compute_ce_loss = request.model != OFFLINE_MODEL
    try:
        metrics, _ = run_evals(
            sae,
            store,
            model,
            ActivationScaler(),
            eval_config=config,
            exclude_special_tokens=about.exclude_special_tokens or False,
        )
    except StopIteration:
        raise UserError(
            f"`text` should fill {settings['batch_size_prompts']} rows of "
            f"{store.context_size} tokens. {source} does not."
        ) from None
    result = {
        "eval_type_id": request.asked.evaluation,
        "eval_config": settings,
        "eval_result_metrics": metrics,
        "sae_lens_version": version("sae-lens"),
    }
    request.result.write_text(json.dumps(result), encoding="utf-8")
