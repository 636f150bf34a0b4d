"""SAELens's own evaluation of an SAE on text, where the SAE was trained."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from sae_lens import SAE, evals
from sae_lens.evals import get_eval_everything_config, run_evals
from sae_lens.training.activation_scaler import ActivationScaler
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.tasks import Measure, Task
from sae_lens_c2r.inspection.activations import ActivationSource, excludes_special_tokens
from sae_lens_c2r.inspection.measures import fidelity_and_firing
from sae_lens_c2r.models.text import read_text
from sae_lens_c2r.models.text_source import PARTS, TextSource

_MOST_TOKENS = 100_000  # of which the activations are held, for co-firing
# Whose means over tokens SAELens makes loss recovered of.
_LOSSES = tuple(f"ce_loss_{which}" for which in ("with_ablation", "with_sae", "without_sae"))


def on_text(task: Task, sae: SAE[Any]) -> Measure:
    """SAELens's own `run_evals`, for models of any class that SAELens loads, and co-firing."""
    metadata, settings = sae.cfg.metadata, dict(task.asked.settings)
    source = task.asked.text or metadata.dataset_path
    if not source:
        raise UserError("text", "be given: the SAE does not say what it was trained on")
    asked = TextSource(source, **{key: settings.pop(key, None) for key in PARTS})
    rows = settings["n_eval_sparsity_variance_batches"] * settings["batch_size_prompts"]
    n_tokens = min(rows * (metadata.context_size or _MOST_TOKENS), _MOST_TOKENS)
    reader = ActivationSource(
        read_text(asked), asked, n_tokens=n_tokens, device=task.device, tell=print
    )
    model = reader.model_of(sae)
    _splice_where_trained(model, slice(*(metadata.seqpos_slice or (None,))))
    _compute_loss_in_float32(model)
    config = get_eval_everything_config(**settings)
    config.compute_kl = config.compute_ce_loss = _predicts_the_next_token(model)

    def measure(task: Task, sae: SAE[Any]) -> dict[str, Any]:
        # Read first: it says in words what SAELens would fail at.
        read = reader.activations(sae, str(task.sae.name))
        store = reader.store_of(sae, store_batch_size_prompts=settings["batch_size_prompts"])
        with _losses_of_rows() as losses:
            metrics, _ = run_evals(
                sae,
                store,
                model,
                ActivationScaler(),
                config,
                exclude_special_tokens=excludes_special_tokens(sae),
                verbose=True,
            )
        if len(losses) > 1:
            of_rows = torch.stack(list(losses.values()))
            metrics["loss_recovered_error"] = error_of_loss_recovered(of_rows)
        found, measured = fidelity_and_firing(sae, read)
        # SAELens's are of positions, too, that `seqpos_slice` left out of training.
        metrics.get("reconstruction_quality", {}).pop("explained_variance", None)
        metrics.get("sparsity", {}).pop("l0", None)
        return {**metrics, **measured, "n_tokens": found.n_tokens}

    return measure


@contextmanager
def _losses_of_rows() -> Iterator[dict[tuple[int, ...], Tensor]]:
    """Collect the sums of the losses of each row of text, of which SAELens returns means."""
    rows: dict[tuple[int, ...], Tensor] = {}  # once each: SAELens reads a short text again
    measure = evals.get_recons_loss

    def collect(
        sae: Any, model: Any, scaler: Any, tokens: Tensor, **options: Any
    ) -> dict[str, Any]:
        found = measure(sae, model, scaler, tokens, **options)
        if options["compute_ce_loss"]:
            ignored = tokens.new_tensor(options["ignore_tokens"] or [])
            counted = ~torch.isin(tokens, ignored)[:, :-1]  # as SAELens counts them
            losses = (found[each].cpu() * counted.cpu() for each in _LOSSES)
            sums = torch.stack([each.sum(dim=1) for each in losses], dim=1).double()
            rows.update(zip(map(tuple, tokens.tolist()), sums, strict=True))
        return found

    with patch.object(evals, "get_recons_loss", collect):
        yield rows


def error_of_loss_recovered(losses: Tensor) -> float:
    """Return its standard error over rows, by the jackknife, from the sums of `_LOSSES`."""
    n = len(losses)
    ablated, spliced, clean = (losses.sum(dim=0) - losses).T
    scores = (ablated - spliced) / (ablated - clean)
    return (scores.var(correction=0) * (n - 1)).sqrt().item()


def _splice_where_trained(model: Any, positions: slice) -> None:
    """Have SAELens leave activations as they are where the SAE was not trained."""
    # It would replace a row's first token, too, which attention rests on in many models.
    run = model.run_with_hooks

    def splice(replace: Callable[..., Tensor], activations: Tensor, hook: Any) -> Tensor:
        spliced = activations.clone()
        spliced[:, positions] = replace(activations, hook=hook)[:, positions]
        return spliced

    def run_with_hooks(*args: Any, fwd_hooks: list[Any], **options: Any) -> Any:
        there = [(name, partial(splice, replace)) for name, replace in fwd_hooks]
        return run(*args, fwd_hooks=there, **options)

    model.run_with_hooks = run_with_hooks


def _predicts_the_next_token(model: Any) -> bool:
    """Whether a model was trained to: encoders like BERT are given a head of random weights."""
    config = getattr(getattr(model, "model", None), "config", None)  # of `transformers`
    is_encoder = getattr(config, "model_type", None) in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    is_causal = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    return not is_encoder or is_causal


def _compute_loss_in_float32(model: Any) -> None:
    """Have SAELens take the loss of logits in float32: bfloat16 would round it to 1/64."""
    wrapped = getattr(model, "model", None)  # of `transformers`
    head = wrapped.get_output_embeddings() if wrapped else model.unembed
    head.register_forward_hook(lambda _module, _inputs, logits: logits.float())
