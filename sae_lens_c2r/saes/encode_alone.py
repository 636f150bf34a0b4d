"""Load SAEs where this package does not exist, and encode a batch with each. Run as a script.

Usage: python encode_alone.py REQUESTS.json

Each request names the file `inputs` and the file `outputs`, and an SAE: a `folder`, or a
`repo_id` and an `sae_id` on the Hub, with a `commit` unless it is that of the branch main.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder: its modules have names that others may have, too
sys.modules["sae_lens_c2r"] = None  # type: ignore[assignment]  # `import sae_lens_c2r` fails

from huggingface_hub import hf_hub_download, snapshot_download  # noqa: E402
from sae_lens import SAE  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

FILES = ("cfg.json", "sae_weights.safetensors")


def load(request: dict[str, str]) -> tuple[SAE[Any], dict[str, str]]:
    """The SAE, and the SHA-256 of the files that it was loaded from."""
    sae: SAE[Any]
    if "folder" in request:
        folder = Path(request["folder"])
        sae = SAE.load_from_disk(folder, dtype="float32")
    elif "commit" in request:
        patterns = f"{request['sae_id']}/*"
        root = snapshot_download(
            request["repo_id"], revision=request["commit"], allow_patterns=patterns
        )
        folder = Path(root) / request["sae_id"]
        sae = SAE.load_from_disk(folder, dtype="float32")
    else:
        sae = SAE.from_pretrained(request["repo_id"], request["sae_id"], dtype="float32")
        folder = Path(
            hf_hub_download(request["repo_id"], f"{request['sae_id']}/{FILES[0]}")
        ).parent
    return sae, {name: _sha256(folder / name) for name in FILES}


def _sha256(path: Path) -> str:
    digest = sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


for request in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
    sae, digests = load(request)
    feature_acts = sae.encode(load_file(request["inputs"])["sae_in"]).detach()
    save_file({"feature_acts": feature_acts}, request["outputs"], metadata=digests)
