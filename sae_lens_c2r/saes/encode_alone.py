"""Load SAEs where this package does not exist, and encode a batch with each. Run as a script.

It reads requests as JSON. Each names an SAE's `folder`, and the files `inputs` and `outputs`.
"""

import json
import sys
from typing import Any

sys.path.pop(0)  # this folder: its modules have names that others may have, too
sys.modules["sae_lens_c2r"] = None  # type: ignore[assignment]  # `import sae_lens_c2r` fails

from sae_lens import SAE  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

for request in json.load(sys.stdin):
    sae: SAE[Any] = SAE.load_from_disk(request["folder"], dtype="float32")
    # Of attention's outputs, the heads are joined already.
    sae.turn_off_forward_pass_hook_z_reshaping()  # type: ignore[no-untyped-call]
    feature_acts = sae.encode(load_file(request["inputs"])["sae_in"]).detach()
    save_file({"feature_acts": feature_acts}, request["outputs"])
