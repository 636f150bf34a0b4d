"""A large file is hashed, stored and committed piece by piece."""

import os
import sys
from pathlib import Path

from tests import forkserver
from tests.hub.server import TOKEN, LoopbackHub

GIGABYTE = 1 << 30
UPLOAD = """
import resource, sys
from pathlib import Path
from huggingface_hub import HfApi
from sae_lens_c2r.hub.remote.difference import PlannedFile
from sae_lens_c2r.hub.remote.publish import publish
from sae_lens_c2r.hub.target import Target
endpoint, token, path = sys.argv[1:]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
files = [PlannedFile.of("a/sae_weights.safetensors", Path(path))]
api, target = HfApi(endpoint, token=token), Target("me/saes")
publish(api, target, lambda _: files, message="Large")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_gigabyte_is_published_within_300_mb(hub: LoopbackHub, tmp_path: Path) -> None:
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.truncate(GIGABYTE)  # sparse: no gigabyte is written here
    online = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0", "NO_PROXY": "*"}
    arguments = ("-c", UPLOAD, hub.endpoint, TOKEN, path)
    ran = forkserver.run(*arguments, env={**os.environ, **online})
    assert ran.returncode == 0, ran.stderr
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(ran.stdout) * unit < 300 << 20
    [stored] = hub.storage.iterdir()
    assert stored.stat().st_size == GIGABYTE
    assert hub.repos["me/saes"].history()[0].files["a/sae_weights.safetensors"].size == GIGABYTE
    stored.unlink()
