"""Load SAEs where this package does not exist, and encode a batch with each. Run as a script.

It reads a list of requests as JSON. Each names the file `inputs` and the file `outputs`, and
an SAE: a `folder`, or a `repo_id` and an `sae_id` on the Hub. Of a folder's files it tells the
SHA-256.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.pop(0)  # this folder: its modules have names that others may have, too
sys.modules["sae_lens_c2r"] = None  # type: ignore[assignment]  # `import sae_lens_c2r` fails

from huggingface_hub.utils.sha import sha_fileobj  # noqa: E402
from sae_lens import SAE  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

for request in json.load(sys.stdin):
    digests = {}
    if "folder" in request:
        folder = Path(request["folder"])
        sae: SAE[Any] = SAE.load_from_disk(folder, dtype="float32")
        for name in ("cfg.json", "sae_weights.safetensors"):
            with (folder / name).open("rb") as file:
                digests[name] = sha_fileobj(file).hex()
    else:
        sae = SAE.from_pretrained(request["repo_id"], request["sae_id"], dtype="float32")
    # Of attention's outputs, the heads are joined already.
    sae.turn_off_forward_pass_hook_z_reshaping()  # type: ignore[no-untyped-call]
    feature_acts = sae.encode(load_file(request["inputs"])["sae_in"]).detach()
    save_file({"feature_acts": feature_acts}, request["outputs"], metadata=digests)
