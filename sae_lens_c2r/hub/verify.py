"""Whether what was published is what anybody gets: loaded without us, from an empty cache."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi, get_token

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.local.prepare_saes import PreparedSAE
from sae_lens_c2r.hub.target import Target
from sae_lens_c2r.saes.probe import encodes_alike
from sae_lens_c2r.saes.saelens_alone import encode_in_saelens_alone


def verify(api: HfApi, target: Target, saes: Sequence[PreparedSAE], *, commit: str) -> None:
    """Load every SAE from the Hub in a process of its own that cannot import this package.

    Unless the commit is what `SAE.from_pretrained` loads, its files are downloaded, and loaded
    by `SAE.load_from_disk`.

    Raises:
        UserError: If one does not load, has other files, or encodes a batch otherwise.
    """
    token = api.token if isinstance(api.token, str) else get_token()
    with TemporaryDirectory() as home:  # an empty cache
        environment = {"HF_HOME": home, "HF_ENDPOINT": api.endpoint, "HF_HUB_OFFLINE": "0"}
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_XET_CACHE"):
            environment[name] = str(Path(home, name.lower()))
        if token:
            environment["HF_TOKEN"] = token
        requests = []
        for sae in saes:
            where = {"repo_id": target.repo_id, "sae_id": sae.sae_id}
            at = {} if target.on_main else {"commit": commit}
            requests.append(({**where, **at}, sae.inputs))
        encoded = encode_in_saelens_alone(requests, environment=environment)
    for sae, found in zip(saes, encoded, strict=True):
        place = f"{sae.sae_id} of {target.repo_id} at {commit[:8]}"
        for file in sae.files:
            name = file.path_in_repo.rpartition("/")[2]
            if found.sha256[name] != file.sha256:
                raise UserError(
                    f"{place} should have {name} with the SHA-256 {file.sha256}. Found "
                    f"{found.sha256[name]}."
                )
        if not encodes_alike(found.feature_acts, sae.feature_acts.to_dense()):
            raise UserError(f"{place} should encode a batch as it did here. It does not.")
