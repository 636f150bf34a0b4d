"""SAELens's own evaluation of SAEs on text, where they were trained."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from sae_lens import SAE
from sae_lens.evals import EvalConfig, run_evals
from sae_lens.training.activation_scaler import ActivationScaler
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.measures import fidelity_and_firing
from sae_lens_c2r.models.reading import Reading, within_norm
from sae_lens_c2r.models.text_source import PARTS, TextSource
from sae_lens_c2r.saes.record import Evaluation

_MOST_TOKENS = 100_000  # of which the activations are held, for co-firing


@dataclass
class OnText:
    """Evaluates SAEs in turn. Those that read alike share a model and its activations."""

    tell: Callable[[str], None]
    _readers: dict[Any, ActivationSource] = field(default_factory=dict, init=False)

    def measure(self, sae: SAE[Any], name: str, asked: Evaluation) -> dict[str, Any]:
        """Loss recovered by SAELens, for any model that it loads, and our numbers of a text."""
        settings = dict(asked.settings)
        source = str(asked.text or sae.cfg.metadata.dataset_path)
        text = TextSource(source, **{key: settings.pop(key, None) for key in PARTS})
        rows = settings.pop("n_eval_sparsity_variance_batches") * settings["batch_size_prompts"]
        n_tokens = min(rows * (sae.cfg.metadata.context_size or _MOST_TOKENS), _MOST_TOKENS)
        key = (text, n_tokens, asked.model)
        if key not in self._readers:
            self._readers.clear()  # one at a time: it holds a model
            how: dict[str, Any] = {"n_tokens": n_tokens, "device": str(asked.device)}
            how["instead"] = {"model_name": asked.model}
            self._readers[key] = ActivationSource(text, **how, tell=self.tell)
        reader = self._readers[key]
        read, reading = reader.activations(sae, name), reader.reading_of(sae)
        model = reader.model_of(reading)
        metrics: dict[str, Any] = {}
        if _predicts_the_next_token(model):
            # SAELens's other numbers are of tokens, too, that training left out.
            config = EvalConfig(**settings, compute_kl=True, compute_ce_loss=True)
            on = torch.device(str(asked.device)).type
            in_bfloat16 = torch.autocast(on, torch.bfloat16, enabled=reading.autocast_lm)
            with in_bfloat16, as_trained(model, reading):
                metrics, _ = run_evals(
                    sae,
                    reader.store_of(reading, d_in=sae.cfg.d_in),
                    model,
                    ActivationScaler(),
                    config,
                    model_kwargs=reading.model_kwargs,
                    exclude_special_tokens=reading.special(model.tokenizer),
                    verbose=True,
                )
            del metrics["token_stats"]
        found, measured = fidelity_and_firing(sae, read)
        n_left_out = sum(read.left_out.values())
        counts = {"n_tokens": found.n_tokens, "n_tokens_left_out": n_left_out}
        return {**metrics, **measured, **counts}


@contextmanager
def as_trained(model: Any, reading: Reading) -> Iterator[None]:
    """Have SAELens leave activations as they are where the SAE was not trained.

    The loss is taken of logits in float32: bfloat16 would round it to 1/64.
    """
    # SAELens would replace a row's first token, too, which attention rests on in many models.
    run, positions = model.run_with_hooks, slice(*reading.seqpos_slice)

    def splice(
        replace: Callable[..., Tensor], tokens: Tensor, activations: Tensor, hook: Any
    ) -> Tensor:
        kept = reading.kept(tokens, model.tokenizer).to(activations.device)
        inputs = activations[:, positions]
        if reading.hook_head_index is not None:
            inputs = inputs[:, :, reading.hook_head_index]
        multiple = reading.max_activation_norm_multiple
        kept[kept.clone()] = within_norm(inputs.flatten(2)[kept], multiple)
        spliced = activations.clone()
        with torch.autocast(activations.device.type, enabled=False):  # which is the model's
            replaced = replace(activations, hook=hook)
        spliced[:, positions][kept] = replaced[:, positions][kept]
        return spliced

    def run_with_hooks(tokens: Tensor, *, fwd_hooks: list[Any], **options: Any) -> Any:
        there = [(name, partial(splice, replace, tokens)) for name, replace in fwd_hooks]
        return run(tokens, fwd_hooks=there, **options)

    wrapped = getattr(model, "model", None)  # of `transformers`
    head = wrapped.get_output_embeddings() if wrapped else model.unembed
    in_float32 = head.register_forward_hook(lambda _module, _inputs, logits: logits.float())
    with patch.object(model, "run_with_hooks", run_with_hooks):
        try:
            yield
        finally:
            in_float32.remove()


def _predicts_the_next_token(model: Any) -> bool:
    """Whether a model was trained to: encoders like BERT are given a head of random weights."""
    config = getattr(getattr(model, "model", None), "config", None)  # of `transformers`
    is_encoder = getattr(config, "model_type", None) in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    is_causal = getattr(config, "is_decoder", False) or getattr(config, "causal", False)
    return not is_encoder or is_causal
