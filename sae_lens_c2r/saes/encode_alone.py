"""Load SAEs where this package does not exist, and encode a batch with each. Run as a script.

It reads a list of requests as JSON. Each names the file `inputs` and the file `outputs`, and
an SAE: a `folder`, or a `repo_id` and an `sae_id` on the Hub, with a `commit` unless it is that
of the branch main.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder: its modules have names that others may have, too
sys.modules["sae_lens_c2r"] = None  # type: ignore[assignment]  # `import sae_lens_c2r` fails

from huggingface_hub import snapshot_download  # noqa: E402
from huggingface_hub.utils.sha import sha_fileobj  # noqa: E402
from sae_lens import SAE  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

for request in json.load(sys.stdin):
    repo_id, sae_id, commit = (request.get(key) for key in ("repo_id", "sae_id", "commit"))
    is_newest = repo_id is not None and commit is None
    if is_newest:  # as anybody does, before its files are looked at, which may change
        sae: SAE[Any] = SAE.from_pretrained(repo_id, sae_id, dtype="float32")
    if repo_id is not None:
        patterns = f"{sae_id}/*"
        folder = Path(snapshot_download(repo_id, revision=commit, allow_patterns=patterns))
        folder /= sae_id
    else:
        folder = Path(request["folder"])
    if not is_newest:
        sae = SAE.load_from_disk(folder, dtype="float32")
    digests = {}
    for name in ("cfg.json", "sae_weights.safetensors"):
        with (folder / name).open("rb") as file:
            digests[name] = sha_fileobj(file).hex()
    # Of attention's outputs, the heads are joined already.
    sae.turn_off_forward_pass_hook_z_reshaping()  # type: ignore[no-untyped-call]
    feature_acts = sae.encode(load_file(request["inputs"])["sae_in"]).detach()
    save_file({"feature_acts": feature_acts}, request["outputs"], metadata=digests)
