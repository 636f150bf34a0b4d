"""Loading an SAE at a revision of its repository, which `SAE.from_pretrained` cannot."""

from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from sae_lens import SAE
from sae_lens.constants import SAE_CFG_FILENAME

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.names import check_id


def load(
    repo_id: str,
    sae_id: str,
    *,
    revision: str,
    device: str = "cpu",
    dtype: str | None = None,
    token: str | bool | None = None,
) -> SAE[Any]:
    """Load an SAE from the Hub as it was at one revision, whatever has happened since.

    Args:
        repo_id: The repository, ``org/name``.
        sae_id: The SAE's folder in it.
        revision: A tag, a branch or, to be sure, a commit.
        device: Where to.
        dtype: Type of its weights; `None` for that in its config.
        token: As of huggingface_hub.

    Returns:
        The SAE, as `SAE.from_pretrained` would load it.

    Raises:
        UserError: If there is no such SAE at that revision.

    Of huggingface_hub come `RepositoryNotFoundError`, `RevisionNotFoundError` and the errors of
    the network.
    """
    patterns = f"{check_id(sae_id)}/*"
    folder = Path(
        snapshot_download(repo_id, revision=revision, allow_patterns=patterns, token=token)
    )
    if not (folder / sae_id / SAE_CFG_FILENAME).is_file():
        raise UserError(
            f"`sae_id` should be a folder with a {SAE_CFG_FILENAME}, in {repo_id} at "
            f"{revision}. Found {sae_id!r}."
        )
    return SAE.load_from_disk(folder / sae_id, device=device, dtype=dtype)
