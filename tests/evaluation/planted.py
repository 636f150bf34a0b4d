"""A language model and a text, as small as they can be, where SAEBench finds them.

The model goes by the name of one that SAEBench knows. Its words carry their first letter in
their embedding, so that SAEBench's absorption evaluation finds letters to evaluate.
"""

import random
import string
from itertools import product
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sae_lens import SAE
from sae_lens.saes import JumpReLUSAE, JumpReLUSAEConfig
from sae_lens.saes.sae import SAEMetadata
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

MODEL = "pythia-70m-deduped"
HOOK = "blocks.0.hook_resid_post"
D_MODEL, D_SAE = 64, 80
LETTERS = string.ascii_lowercase
WORDS = [
    first + "".join(rest) for first in LETTERS for rest in list(product("aeiou", "klmnr"))[:16]
]
SPECIAL, PROMPT = ["<eos>", "<pad>", "<unk>"], ["has", "the", "first", "letter", ":"]


def plant_model(home: Path) -> None:
    """Put the model into a cache of the Hub, as if it had been downloaded."""
    torch.manual_seed(0)
    words = [*SPECIAL, *PROMPT, *WORDS, *string.ascii_uppercase]  # the last are the answers
    vocabulary = {word: i for i, word in enumerate(words)}
    config = GPTNeoXConfig(
        vocab_size=len(vocabulary),
        hidden_size=D_MODEL,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPTNeoXForCausalLM(config)
    embedding = model.get_input_embeddings().weight.data
    for word in WORDS:
        embedding[vocabulary[word]] += 3 * letter_directions()[LETTERS.index(word[0])]
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    special = {"eos_token": "<eos>", "bos_token": "<eos>"}
    special |= {"pad_token": "<pad>", "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    commit = "0" * 40
    repository = home / "hub" / f"models--EleutherAI--{MODEL}"
    model.save_pretrained(repository / "snapshots" / commit)
    fast.save_pretrained(repository / "snapshots" / commit)
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)


def letter_directions() -> torch.Tensor:
    """A direction for each letter, orthogonal to the others."""
    generator = torch.Generator().manual_seed(0)
    return torch.linalg.qr(torch.randn(D_MODEL, 26, generator=generator))[0].T


def plant_text(folder: Path) -> None:
    """Put a text of the model's words into a folder."""
    rng = random.Random(0)
    folder.mkdir()
    lines = [{"text": " ".join(rng.choice(WORDS) for _ in range(300))} for _ in range(40)]
    Dataset.from_list(lines).to_json(folder / "train.jsonl")


def plant_sae(folder: Path, **options: Any) -> Path:
    """Save an SAE whose first latents are the letters."""
    small_sae(**options).save_model(folder)
    return folder


def small_sae(*, seed: int = 0, d_in: int = D_MODEL, hook: str = HOOK) -> SAE:
    generator = torch.Generator().manual_seed(seed + 1)
    decoder = torch.randn(D_SAE, d_in, generator=generator)
    if d_in == D_MODEL:
        decoder[:26] = letter_directions()
    decoder /= decoder.norm(dim=1, keepdim=True)
    loader = "HookedTransformer" if "hook" in hook else "AutoModelForCausalLM"
    reads = {"model_name": MODEL, "hook_name": hook, "model_class_name": loader}
    metadata = SAEMetadata(
        context_size=32, prepend_bos=True, dataset_path="nobody/nothing", **reads
    )
    sae = JumpReLUSAE(JumpReLUSAEConfig(d_in=d_in, d_sae=D_SAE, metadata=metadata))
    sae.W_dec.data = decoder.clone()
    sae.W_enc.data = decoder.T.clone().contiguous()
    sae.threshold.data = torch.full((D_SAE,), 0.8)
    return sae
