"""A language model of one block, with text, for SAELens's own runners."""

import warnings
from functools import cache

from datasets import Dataset
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformers import AutoTokenizer

from sae_lens_c2r.models.offline import MINILM, model_folder

HOOK = "blocks.0.hook_resid_post"
CONTEXT, D_MODEL = 8, 6
TEXTS = ["one", "a longer text " * 9, "of many words " * 30, "and so on"] * 3


@cache
def tiny_model(n_ctx: int = CONTEXT) -> HookedTransformer:
    """Random weights, and a real tokenizer."""
    config = HookedTransformerConfig(
        n_layers=1, d_model=D_MODEL, n_ctx=n_ctx, d_head=3, act_fn="relu", seed=0
    )
    tokenizer = AutoTokenizer.from_pretrained(model_folder(MINILM))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of HookedTransformer, since 3.3
        return HookedTransformer(config, tokenizer=tokenizer)


def rows_of_tokens(n_rows: int = 23) -> Dataset:
    return Dataset.from_dict(
        {"tokens": [[(7 * row + i) % 50 for i in range(CONTEXT)] for row in range(n_rows)]}
    )


def texts() -> Dataset:
    return Dataset.from_dict({"text": TEXTS})
