"""The demo's transformer on the demo's text: activations that need no network."""

import torch
from torch import Tensor

D_IN, HOOK_NAME = 384, "bert.encoder.layer.3"  # of the demo


def text_activations(n_training: int, n_held_out: int) -> tuple[Tensor, Tensor]:
    """Run the transformer over the text, without what it makes of special tokens.

    Args:
        n_training: Tokens, at most, of the documents that SAEs are trained on.
        n_held_out: Tokens, at most, of those that are held out.

    Returns:
        Activations at the demo's hook, shape ``[tokens, d_in]``, of both.
    """
    from sae_lens.load_model import load_model
    from transformers import AutoTokenizer

    from sae_lens_c2r.offline import corpus
    from sae_lens_c2r.offline.minilm import CLS, PAD, SEP, model_folder

    folder = str(model_folder())
    model = load_model("AutoModelForCausalLM", folder, device="cpu", hook_names=[HOOK_NAME])
    tokenizer = AutoTokenizer.from_pretrained(folder)

    @torch.no_grad()
    def activations_of(rows: Tensor, at_most: int) -> Tensor:
        batches, n_tokens = [], 0
        for batch in rows.split(32):
            # Naming a layer to stop at has SAELens's wrapper stop at the hook.
            _, cache = model.run_with_cache(batch, names_filter=[HOOK_NAME], stop_at_layer=-1)
            batches.append(cache[HOOK_NAME][~torch.isin(batch, torch.tensor([PAD, CLS, SEP]))])
            n_tokens += len(batches[-1])
            if n_tokens >= at_most:
                break
        return torch.cat(batches)[:at_most].clone()

    training, held_out = corpus.split(corpus.documents(), held_out_share=0.1, seed=0)
    return (
        activations_of(corpus.token_rows(training, tokenizer), n_training),
        activations_of(corpus.token_rows(held_out, tokenizer), n_held_out),
    )
