"""Language models of one block with text: one for SAELens's own runners, one for releases."""

import json
import random
import warnings
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

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


WIDTH, ROW = 8, 16  # of the saved model's activations, and of a row of its text
# Fields of SAELens's runner with which the saved model is trained on, fast and offline.
RUNNER: dict[str, Any] = {
    "model_class_name": "AutoModelForCausalLM",
    "prepend_bos": False,
    "train_batch_size_tokens": 100,
    "store_batch_size_prompts": 8,
}


def saved_model(n_tokens: int = 1000) -> dict[str, Any]:
    """The key `language_model` of a release that is trained within a second."""
    folder = _saved()
    return {
        "name": str(folder),
        "hook_name": "model.layers.0",
        "dataset": str(folder / "rows.jsonl"),
        "context_size": ROW,
        "training_tokens": n_tokens,
    }


def _saved() -> Path:
    """A Llama of random weights, its tokenizer and rows of tokens, once in a process."""
    folder = Path(_folder().name)
    if not (folder / "rows.jsonl").exists():
        words = {f"word{number}": number for number in range(64)}
        tokenizer = Tokenizer(WordLevel(words, unk_token="word0"))
        special = {"unk_token": "word0", "bos_token": "word1", "eos_token": "word2"}
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
        sizes = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_attention_heads": 2}
        config = LlamaConfig(vocab_size=len(words), num_hidden_layers=1, **sizes)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            LlamaForCausalLM(config).save_pretrained(folder)
        draw = random.Random(0)
        rows = ([draw.randrange(3, 64) for _ in range(ROW)] for _ in range(400))
        text = "".join(f"{json.dumps({'tokens': row})}\n" for row in rows)
        (folder / "rows.jsonl").write_text(text)
    return folder


@cache
def _folder() -> "TemporaryDirectory[str]":
    return TemporaryDirectory(prefix="model-")
