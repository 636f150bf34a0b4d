"""A causal model's activations, and what its SAEs make of words' first letters."""

import re
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sae_lens import SAE
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, one_hot

from benchmarks.experiment import read_sizes
from benchmarks.report import draw_sizes
from benchmarks.rows import Row
from benchmarks.worlds.minilm_text import MiniLMText

SIZES = read_sizes(Path(__file__))
D_IN, HOOK_NAME = 576, "model.layers.9"
CONTEXT, ROWS, SEPARATOR = 256, 32, 0  # SEPARATOR is <|endoftext|>
# The norms of the first tokens, and of a few others, are many times the rest's.
FIRST_TOKENS, HIGHEST_NORM = 4, 4.0
HELD_OUT_ARTICLES = 200
WORD = re.compile("Ġ[a-z]+")  # as the tokenizer writes one after a space
SPELLED = 3  # words of a prompt whose letters are given
ENOUGH = 0.6  # F1 of a letter's probe that is measured by; it and what follows are SAEBench's
F1_RISE = 0.03  # by which another latent belongs to a letter
MOST_LATENTS = 10
ALIGNED, ABSORBER_ALIGNED, SHARE = 0.025, 0.1, 0.4
MOST_ABSORBERS = 3


def collect(text: Path, held_out: Path, words: Path, size: Any) -> None:
    """Keep activations of Wikipedia's articles and of single words, in float16."""
    from sae_lens.load_model import load_model
    from transformers import AutoTokenizer

    from sae_lens_c2r.offline.models import SMOLLM2, model_folder
    from sae_lens_c2r.offline.wikipedia import articles

    folder = str(model_folder(SMOLLM2))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    options = {"dtype": torch.bfloat16}
    model = load_model("AutoModelForCausalLM", folder, "cpu", options, hook_names=[HOOK_NAME])

    @torch.no_grad()
    def activations(rows: Tensor) -> Tensor:
        # Naming a layer to stop at has SAELens's wrapper stop at the hook.
        _, cache = model.run_with_cache(rows, names_filter=[HOOK_NAME], stop_at_layer=-1)
        return cache[HOOK_NAME].float()

    def of_text(texts: Sequence[str], at_most: int) -> Tensor:
        encoded = (tokenizer(text)["input_ids"] + [SEPARATOR] for text in texts)
        ids = chain.from_iterable(encoded)
        kept, n_tokens = torch.empty(at_most, D_IN, dtype=torch.float16), 0
        while n_tokens < at_most:
            rows = torch.tensor(list(islice(ids, ROWS * CONTEXT))).view(-1, CONTEXT)
            found = activations(rows)[:, FIRST_TOKENS:].flatten(end_dim=1)
            norms = found.norm(dim=1)
            found = found[norms < HIGHEST_NORM * norms.median()][: at_most - n_tokens]
            kept[n_tokens : n_tokens + len(found)] = found
            n_tokens += len(found)
        return kept

    texts = articles()
    pool = of_text(texts[HELD_OUT_ARTICLES:], size.pool)
    scale = D_IN**0.5 / pool[:65_536].float().norm(dim=1).mean().item()
    np.save(held_out, (scale * of_text(texts[:HELD_OUT_ARTICLES], size.evaluation)).numpy())
    rows, letters = spelling(tokenizer, size.evaluation)
    of_words = torch.cat([activations(batch)[:, -1] for batch in rows.split(256)])
    np.savez(words, inputs=(scale * of_words).half().numpy(), letters=letters.numpy())
    np.save(text, pool.mul_(scale).numpy())


def spelling(tokenizer: Any, at_most: int) -> tuple[Tensor, Tensor]:
    """Return prompts that end in a word, and the words' first letters, both in a fixed order.

    `tartan has the first letter: T`, as SAEBench asks, three times; then the word alone.
    """
    ids = {token: i for token, i in tokenizer.get_vocab().items() if WORD.fullmatch(token)}
    order = torch.Generator().manual_seed(0)
    names = sorted(ids)
    words = [names[i] for i in torch.randperm(len(names), generator=order)][:at_most]
    letters = torch.tensor([ord(word[1]) - ord("a") for word in words])
    given = torch.randint(len(words), (len(words), SPELLED), generator=order)
    answer = [tokenizer(f" {chr(ord('A') + i)}\n")["input_ids"] for i in range(26)]
    between = torch.tensor(tokenizer(" has the first letter:")["input_ids"])
    asked = torch.tensor([ids[word] for word in words])
    told = torch.cat(
        [
            asked[given][..., None],
            between.expand(*given.shape, -1),
            torch.tensor(answer)[letters[given]],
        ],
        dim=-1,
    )
    return torch.cat([told.flatten(start_dim=1), asked[:, None]], dim=1), letters


class LanguageModel(MiniLMText):
    """The same of SmolLM2, after its tenth block, and words for their letters."""

    d_in, d_sae, kept_in = D_IN, 4096, "language-model"

    def _collect(self, path: Path) -> None:
        collect(path, self.held_out, self.folder / "words.npz", self.size)

    def evaluate(self, sae: SAE[Any]) -> Row:
        """Measure text that no SAE has seen, and how letters are found in words."""
        words = np.load(self.folder / "words.npz")
        spelled = torch.from_numpy(words["inputs"]).float(), torch.from_numpy(words["letters"])
        return {**super().evaluate(sae), **letter_measures(sae, *spelled)}


@torch.no_grad()
def letter_measures(sae: SAE[Any], inputs: Tensor, letters: Tensor) -> Row:
    """Return means over letters of how latents find them in words, and what is absorbed.

    The latents of a letter are those that tell its words best by whether any of them fires.
    Absorption is SAEBench's, of unseen words that a linear probe gets right: whether a latent
    that is aligned with the probe makes up for letters' latents that are silent, and what
    share of the probe's projection other latents have taken over.
    """
    n_training = int(0.8 * len(inputs))
    weights, biases = letter_probes(inputs[:n_training], letters[:n_training])
    directions = torch.nn.functional.normalize(weights, dim=1)
    aligned = cosine_similarity(directions[:, None], sae.W_dec[None].cpu(), dim=-1)
    latents = torch.cat([sae.encode(each.to(sae.device)).cpu() for each in inputs.split(4096)])
    seen, unseen = latents[:n_training] > 0, slice(n_training, None)
    words, fires = inputs[unseen], latents[unseen] > 0
    said = words @ weights.T + biases > 0
    rows = []
    for letter in range(26):
        is_letter = letters[unseen] == letter
        probe_f1 = f1(said[:, letter], is_letter)
        if probe_f1 < ENOUGH:
            continue
        main = latents_of_letter(seen, letters[:n_training] == letter)
        right = said[:, letter] & is_letter
        share = latents[unseen][right] * aligned[letter]
        whole = words[right] @ directions[letter]
        silent = ~fires[right][:, main].any(dim=1)
        absorbed = _has_absorber(share, whole, aligned[letter])
        fraction = _fraction(share, whole, aligned[letter], main)
        found = {
            "letter_f1": f1(fires[:, main].any(dim=1), is_letter),
            "letter_latents": len(main),
            "silent": silent.float().mean().item(),
            "full_absorption": (silent & absorbed).float().mean().item(),
            "absorption_fraction": fraction.mean().item(),
            "probe_f1": probe_f1,
        }
        rows.append(found)
    return {**pd.DataFrame(rows).mean().to_dict(), "letters": len(rows)}


def _has_absorber(share: Tensor, whole: Tensor, aligned: Tensor) -> Tensor:
    """Return whether the latent with the largest projection is aligned and takes enough."""
    largest, which = share.max(dim=1)
    return (aligned[which] >= ALIGNED) & (whole > 0) & (largest >= SHARE * whole)


def _fraction(share: Tensor, whole: Tensor, aligned: Tensor, main: list[int]) -> Tensor:
    """Return the share of the probe's projection that is not its main latents'."""
    own = share[:, main].sum(dim=1)
    others = share.clone()
    others[:, main] = 0
    others[:, aligned < ABSORBER_ALIGNED] = 0
    taken = others.clamp(min=0).topk(MOST_ABSORBERS).values.sum(dim=1)
    counted = torch.minimum(taken, whole - own)
    fraction = torch.where(own <= 0, 1.0, (counted / (counted + own)).clamp(0, 1))
    return torch.where((own >= whole) | (taken < SHARE * whole), 0.0, fraction)


def latents_of_letter(fires: Tensor, is_letter: Tensor) -> list[int]:
    """Return the latents that tell a letter's words best, until F1 rises no further."""
    main: list[int] = []
    best, found = 0.0, torch.zeros_like(is_letter)
    while len(main) < MOST_LATENTS:
        # Beyond the words that are found already, whose latents fire in vain.
        new = fires & ~found[:, None]
        right = new[is_letter].sum(dim=0) + (found & is_letter).sum()
        scores = 2 * right / (new.sum(dim=0) + found.sum() + is_letter.sum())
        score, which = scores.max(dim=0)
        if score < best + F1_RISE:
            break
        best, found = score.item(), found | fires[:, which]
        main.append(int(which))
    return main


def f1(said: Tensor, true: Tensor) -> float:
    """Return the F1 of a guess."""
    return (2 * (said & true).sum() / (said.sum() + true.sum()).clamp(min=1)).item()


def letter_probes(inputs: Tensor, letters: Tensor) -> tuple[Tensor, Tensor]:
    """Fit a linear probe for each letter; return weights, shape ``[26, d_in]``, and biases."""
    weights = torch.zeros(26, inputs.shape[1], requires_grad=True)
    biases = torch.zeros(26, requires_grad=True)
    wanted = one_hot(letters, 26).float()
    rarity = (len(wanted) - wanted.sum(dim=0)) / wanted.sum(dim=0).clamp(min=1)
    optimizer = torch.optim.LBFGS(
        [weights, biases], max_iter=200, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        scores = inputs @ weights.T + biases
        found = binary_cross_entropy_with_logits(scores, wanted, pos_weight=rarity)
        (found := found + 1e-4 * weights.square().sum()).backward()
        return found

    with torch.enable_grad():
        optimizer.step(loss)
    return weights.detach(), biases.detach()


draw, open_world = partial(draw_sizes, sizes=SIZES), LanguageModel
