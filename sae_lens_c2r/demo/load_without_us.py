"""Load a saved SAE where this package does not exist, and encode a batch. Run as a script.

Usage: python load_without_us.py SAE_FOLDER INPUTS.safetensors OUTPUTS.safetensors
"""

import sys
from typing import Any

sys.modules["sae_lens_c2r"] = None  # type: ignore[assignment]  # `import sae_lens_c2r` fails

from sae_lens import SAE  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

folder, inputs, outputs = sys.argv[1:]
sae: SAE[Any] = SAE.load_from_disk(folder)
save_file({"feature_acts": sae.encode(load_file(inputs)["sae_in"]).detach()}, outputs)
