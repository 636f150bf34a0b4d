"""The texts that need no hub, and how MiniLM reads one: in rows of tokens."""

import ast
import random
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from datasets import Dataset, ReadInstruction

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models.offline import CLS, MINILM, SEP, OfflineModel, model_folder
from sae_lens_c2r.models.wikipedia import ENWIK8, articles

OFFLINE_DATASET = "python-documentation"  # which every Python brings along
OFFLINE_DATASETS = (OFFLINE_DATASET, ENWIK8)
_NOT_LIBRARY = {"site-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data"}
_SHORTEST = 40  # characters; below that a docstring is hardly a sentence


def documents_of(dataset: str, split: str | None = None) -> tuple[str, ...]:
    """The documents of one of the offline texts, or of a part of it."""
    found = documents() if dataset == OFFLINE_DATASET else articles()
    return sum((found[part] for part in parts_of(dataset, split, len(found))), ())


def parts_of(dataset: str, split: str | None, n_documents: int) -> list[slice]:
    """The documents that are asked for of a text's only split, by the rules of `datasets`."""
    try:
        asked = ReadInstruction.from_spec(split or "train").to_absolute({"train": n_documents})
        return [slice(each.from_, each.to) for each in asked]
    except (AssertionError, ValueError) as error:
        should = f"be train, or a part of it like train[90%:], of the built-in text {dataset}"
        raise UserError("split", should, split) from error


@cache
def documents() -> tuple[str, ...]:
    """The language reference's topics and the standard library's docstrings, each text once."""
    # The docstrings are read from the source files, so that nothing is imported or run: that
    # takes seconds, and is done once in a process. The texts, and with them the demo's
    # figures, differ a little from one Python to the next.
    texts = [*topics.values(), *_docstrings(Path(sysconfig.get_path("stdlib")))]
    return tuple(dict.fromkeys(text for text in texts if len(text) >= _SHORTEST))


def _docstrings(library: Path) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in sorted(library.rglob("*.py")):
        if _NOT_LIBRARY.isdisjoint(path.relative_to(library).parts):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, documented):
                    yield ast.get_docstring(node) or ""


def split(
    texts: Sequence[str], *, held_out_share: float, seed: int
) -> tuple[list[str], list[str]]:
    """Shuffle documents: those to train on, and a share that is held out whole."""
    shuffled = random.Random(seed).sample(texts, len(texts))
    n_held_out = round(held_out_share * len(texts))
    return shuffled[n_held_out:], shuffled[:n_held_out]


def token_rows(texts: Iterable[str], tokenizer: Any) -> Iterator[list[int]]:
    """The texts in rows of token ids that MiniLM reads; one shorter row if they fill none."""
    per_row, is_first = MINILM.context_size - 2, True
    held: list[int] = []
    for text in texts:
        # It would warn of texts longer than the model's context, which we cut ourselves.
        held += tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        end = len(held) // per_row * per_row
        for start in range(0, end, per_row):
            yield [CLS, *held[start : start + per_row], SEP]
        held, is_first = held[end:], is_first and end == 0
    if is_first and held:
        yield [CLS, *held, SEP]


def offline_source(
    dataset: str = OFFLINE_DATASET, *, model: OfflineModel = MINILM
) -> tuple[str, Dataset]:
    """The folder of a model, and an offline text, for MiniLM in rows of its tokens."""
    from transformers import AutoTokenizer

    folder, texts = str(model_folder(model)), documents_of(dataset)
    if model is not MINILM:  # a causal model reads documents, which SAELens joins
        return folder, Dataset.from_dict({"text": list(texts)})
    rows = token_rows(texts, AutoTokenizer.from_pretrained(folder))
    return folder, Dataset.from_dict({"tokens": list(rows)})
