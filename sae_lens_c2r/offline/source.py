"""The text and the model that need no network: those of the demo."""

from functools import cache
from importlib.util import find_spec

from datasets import Dataset

from sae_lens_c2r.offline import corpus
from sae_lens_c2r.offline.minilm import HUB_ID, PACKAGE, model_folder

OFFLINE_DATASET = corpus.NAME
OFFLINE_MODEL = HUB_ID


def where_model_is(name: str) -> str:
    """What a model is loaded from: all-MiniLM-L6-v2 from its package, if that is installed."""
    return str(model_folder()) if name == OFFLINE_MODEL and find_spec(PACKAGE) else name


def offline_source(text: Dataset | None = None) -> tuple[str, Dataset]:
    """all-MiniLM-L6-v2 and Python's documentation.

    Args:
        text: Rows of tokens, such as a part of the documentation, to use in its place.

    Returns:
        The model's folder, and the text in rows of tokens.

    Raises:
        UserError: If the package that holds the model is missing, or holds other weights.
    """
    folder = str(model_folder())
    return folder, _in_rows(corpus.documents(), folder) if text is None else text


@cache
def _in_rows(texts: tuple[str, ...], tokenizer: str) -> Dataset:
    """Texts as rows of tokens, by the tokenizer in a folder."""
    from transformers import AutoTokenizer

    rows = corpus.token_rows(texts, AutoTokenizer.from_pretrained(tokenizer))
    return Dataset.from_dict({"tokens": rows.tolist()})
