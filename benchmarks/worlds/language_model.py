"""A causal model: its activations, first letters, classes of tokens, and its loss."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sae_lens import SAE
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.classes import class_measures
from benchmarks.enwik8 import articles
from benchmarks.experiment import Run, read_sizes, read_yaml
from benchmarks.report import draw_sizes
from benchmarks.rows import Row
from benchmarks.worlds.minilm_text import MiniLMText, activations, load, text_measures
from sae_lens_c2r.models.offline import SMOLLM2

SIZES = read_sizes(Path(__file__))
D_IN, HOOK_NAME = 576, "model.layers.9"
CONTEXT, ROWS, SEPARATOR = 256, 32, 0  # SEPARATOR is <|endoftext|>
LOSS_ROWS, LOSS_BATCH = 64, 4  # whose loss is measured, and at once
# The norms of the first tokens, and of a few others, are many times the rest's.
FIRST_TOKENS, HIGHEST_NORM = 4, 4.0
HELD_OUT_ARTICLES = 200
WORD = re.compile("Ġ[a-z]+")  # as the tokenizer writes one after a space
SPELLED = 3  # words of a prompt whose letters are given
LETTER_F1, CLASS_F1 = 0.6, 0.95  # of a probe, at least; the first is SAEBench's
OF_LETTERS = {"f1": "letter_f1", "latents": "letter_latents", "counted": "letters"}
PIECE = re.compile("[a-z]+")  # of a word, where the token before it ends in a letter
ABOUT = read_yaml(Path(__file__))


def read(model: Any, texts: Iterable[str]) -> Iterator[tuple[Tensor, ...]]:
    """Yield rows of tokens, which of these SAEs are trained on, and their activations."""
    encoded = ([*model.tokenizer(text)["input_ids"], SEPARATOR] for text in texts)
    ids = chain.from_iterable(encoded)
    while True:
        rows = torch.tensor(list(islice(ids, ROWS * CONTEXT))).view(-1, CONTEXT)
        found = activations(model, rows)
        norms = found.norm(dim=-1)
        used = norms < HIGHEST_NORM * norms[:, FIRST_TOKENS:].median()
        used[:, :FIRST_TOKENS] = False
        yield rows, used.cpu(), found[used].cpu()


def collect_held_out(
    folder: Path, texts: Iterable[str], model: Any, scale: float, at_most: int
) -> None:
    """Keep activations of articles that no SAE is trained on, their tokens, and words'."""
    parts, n_tokens = [], 0
    for part in read(model, texts):
        parts.append(part)
        if (n_tokens := n_tokens + len(part[-1])) >= at_most:
            break
    rows, used, inputs = map(torch.cat, zip(*parts, strict=True))
    np.save(folder / "held_out.npy", (scale * inputs[:at_most]).half().numpy())
    names = model.tokenizer.convert_ids_to_tokens(range(len(model.tokenizer)))
    classes = classes_of(rows, names)[used][:at_most]
    rows, used = rows[:LOSS_ROWS], used[:LOSS_ROWS]
    tokens = {
        "classes": classes,
        "rows": rows,
        "used": used,
        "scale": scale,
        "loss": loss_on(model, rows, used, lambda found: found),
        "loss_of_zeros": loss_on(model, rows, used, torch.zeros_like),
    }
    torch.save(tokens, folder / "tokens.pt")
    prompts, letters = spelling(model.tokenizer, at_most)
    inputs = torch.cat([activations(model, each)[:, -1].cpu() for each in prompts.split(256)])
    torch.save({"inputs": (scale * inputs).half(), "letters": letters}, folder / "words.pt")


def classes_of(rows: Tensor, names: Sequence[str]) -> Tensor:
    """Return the class of each token, 0 for pieces of words, -1 for none."""
    plain = [name.removeprefix("Ġ") for name in names]
    matching = ([bool(re.fullmatch(kind, name)) for kind in ABOUT["tokens"]] for name in plain)
    classes = torch.tensor([1 + here.index(True) if any(here) else -1 for here in matching])
    goes_on = torch.tensor([bool(PIECE.fullmatch(name)) for name in names])
    letter_last = torch.tensor([bool(re.search("[A-Za-z]$", name)) for name in names])
    is_piece = goes_on[rows] & letter_last[rows.roll(1, dims=1)]
    return torch.where(is_piece, 0, classes[rows])


@torch.no_grad()
def loss_on(
    model: Any, rows: Tensor, used: Tensor, replace: Callable[[Tensor], Tensor]
) -> float:
    """Return the mean loss on rows, with the activations that are used replaced."""
    losses = []
    for tokens, here in zip(rows.split(LOSS_BATCH), used.split(LOSS_BATCH), strict=True):

        def splice(found: Tensor, here: Tensor = here, **_: Any) -> Tensor:
            found[here] = replace(found[here].float()).to(found.dtype)
            return found

        tokens = tokens.to(next(model.parameters()).device)
        logits = model.run_with_hooks(tokens, fwd_hooks=[(HOOK_NAME, splice)])
        said, true = logits[:, FIRST_TOKENS:-1].float(), tokens[:, FIRST_TOKENS + 1 :]
        losses.append(cross_entropy(said.mT, true).item())
    return float(np.mean(losses))


def spelling(tokenizer: Any, at_most: int) -> tuple[Tensor, Tensor]:
    """Return prompts that end in a word, and the words' first letters, in a fixed order."""
    # `tartan has the first letter: T`, as SAEBench asks, three times; then the word alone.
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
    """The same of SmolLM2, after its tenth block, and what else a language model tells."""

    d_in, d_sae, kept_in = D_IN, 4096, "smollm2"

    def __init__(self, run: Run, data: Path, device: str) -> None:
        super().__init__(run, data, device)
        vars(self).update(ABOUT["of_size"].get(self.size.name, {}))

    def draw_shared(self, folder: Path) -> None:
        texts = articles()
        model = load(SMOLLM2, HOOK_NAME, self.device, dtype=torch.bfloat16)
        pool, n_tokens = torch.empty(self.size.pool, D_IN, dtype=torch.float16), 0
        for _, _, found in read(model, texts[HELD_OUT_ARTICLES:]):
            part = pool[n_tokens : n_tokens + len(found)]
            part.copy_(found[: len(part)])
            n_tokens += len(part)
            if n_tokens == len(pool):
                break
        scale = D_IN**0.5 / pool[:65_536].float().norm(dim=1).mean().item()
        np.save(folder / "text.npy", pool.mul_(scale).numpy())
        held_out = texts[:HELD_OUT_ARTICLES]
        collect_held_out(folder, held_out, model, scale, self.size.evaluation)

    def evaluate(self, sae: SAE[Any]) -> Row:
        inputs = torch.from_numpy(np.load(self.held_out)).float()
        words, tokens = (torch.load(self.folder / name) for name in ("words.pt", "tokens.pt"))
        spelled = words["inputs"].float(), words["letters"]
        letters = class_measures(sae, *spelled, enough=LETTER_F1)
        classes = class_measures(sae, inputs, tokens["classes"], enough=CLASS_F1)
        model = load(SMOLLM2, HOOK_NAME, self.device, dtype=torch.bfloat16)
        scale, of_zeros = tokens["scale"], tokens["loss_of_zeros"]
        found = loss_on(model, tokens["rows"], tokens["used"], lambda x: sae(scale * x) / scale)
        return {
            **text_measures(sae, inputs.to(self.device)),
            **{OF_LETTERS.get(name, name): value for name, value in letters.items()},
            **{f"class_{name}": value for name, value in classes.items()},
            "loss_recovered": (of_zeros - found) / (of_zeros - tokens["loss"]),
        }


draw, open_world = partial(draw_sizes, sizes=SIZES), LanguageModel
