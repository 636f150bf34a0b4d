"""A language model and SAEBench's datasets, as small as they can be, where SAEBench finds them.

The model goes by the name of one that SAEBench knows. Its words carry their first letter in
their embedding, so that SAEBench's absorption evaluation finds letters to evaluate.
"""

import json
import random
import string
from itertools import product
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from datasets.packaged_modules.json.json import Json
from sae_lens import SAE
from sae_lens.saes import JumpReLUSAE, JumpReLUSAEConfig
from sae_lens.saes.sae import SAEMetadata
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

MODEL, RAVEL_MODEL = "pythia-70m-deduped", "pythia-160m-deduped"
HOOK = "blocks.0.hook_resid_post"
D_MODEL, D_SAE = 64, 80
LETTERS = string.ascii_lowercase
WORDS = [
    first + "".join(rest) for first in LETTERS for rest in list(product("aeiou", "klmnr"))[:16]
]
SPECIAL, PROMPT = ["<eos>", "<pad>", "<unk>"], ["has", "the", "first", "letter", ":"]
CLASSES = (0, 1, 2, 6, 9)  # the professions of SAEBench's first set
SCR_CLASSES = (21, 13)  # professor and nurse


def plant_model(home: Path) -> None:
    """Put the model into a cache of the Hub, as if it had been downloaded.

    Beside it lies what RAVEL asks: cities of which the model knows everything.
    """
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
    for name in (MODEL, RAVEL_MODEL):
        repository = home / "hub" / f"models--EleutherAI--{name}"
        model.save_pretrained(repository / "snapshots" / commit)
        fast.save_pretrained(repository / "snapshots" / commit)
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(commit)
    templates = {"Country": "%s has", "Continent": "%s letter :"}

    def answer(prompt: str) -> str:
        tokens = torch.tensor([fast.encode(prompt)])
        generated = model.generate(tokens, max_new_tokens=1, do_sample=False)
        return fast.decode(generated[0, -1:])

    cities = {
        city: {attribute: answer(template % city) for attribute, template in templates.items()}
        for city in WORDS[::8]
    }
    repository = home / "hub" / "datasets--adamkarvonen--ravel_prompts"
    folder = repository / "snapshots" / commit
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    for name, content in {
        "entity_attributes": cities,
        "entity_to_split": dict.fromkeys(cities, "train"),
        "prompt_to_split": dict.fromkeys(templates.values(), "train"),
        "attribute_to_prompts": {key: [value] for key, value in templates.items()},
    }.items():
        (folder / f"ravel_city_{name}.json").write_text(json.dumps(content))


def letter_directions() -> torch.Tensor:
    """A direction for each letter, orthogonal to the others."""
    generator = torch.Generator().manual_seed(0)
    return torch.linalg.qr(torch.randn(D_MODEL, 26, generator=generator))[0].T


def plant_datasets(home: Path) -> None:
    """Put biographies into a cache, as if SAEBench had loaded them, and a text beside it."""
    rng = random.Random(0)

    def words(letters: str, n: int = 12) -> list[str]:
        return [rng.choice([word for word in WORDS if word[0] in letters]) for _ in range(n)]

    biographies = home / "biographies"
    biographies.mkdir()
    for split, n in (("train", 40), ("test", 20)):
        lines = []
        professions = enumerate((*CLASSES, *SCR_CLASSES))
        for (number, profession), gender, _ in product(professions, (0, 1), range(n)):
            letters = LETTERS[number] * 3 + "yz"[gender] * 2 + LETTERS[10:20]
            text = words(LETTERS[number], 4) + words("yz"[gender], 4) + words(letters, 8)
            who = {"profession": profession, "gender": gender}
            lines.append({"hard_text": " ".join(text), **who})
        Dataset.from_list(lines).to_json(biographies / f"{split}.jsonl")
    builder = Json(
        cache_dir=str(home / "datasets"),
        repo_id="LabHC/bias_in_bios",
        dataset_name="bias_in_bios",
        data_files={path.stem: str(path) for path in biographies.iterdir()},
        hash="planted",
    )
    builder.download_and_prepare()
    config = Path(builder.cache_dir).parents[1]
    config.rename(config.with_name("default"))  # as what is read from the Hub
    text = home / "text"
    text.mkdir()
    lines = [{"text": " ".join(words(LETTERS, 300))} for _ in range(40)]
    Dataset.from_list(lines).to_json(text / "train.jsonl")


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
