"""The origin of an SAE: exactly which files it is loaded from, and its licence."""

import re
from dataclasses import replace
from typing import Any

from huggingface_hub import hf_hub_download, metadata_load
from sae_lens import SAE, BatchTopKTrainingSAE
from sae_lens.loading.pretrained_saes_directory import get_repo_id_and_folder_name
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import sha256_of
from sae_lens_c2r.saes.record import read_record
from sae_lens_c2r.saes.sae_ref import SAE_FILES, SAERef, downloads, inference_form

_COMMIT = r"/models--[^/]+/snapshots/([^/]+)/"  # in the path of a file in the Hub's cache


def pin(ref: SAERef) -> tuple[SAERef, SAE[Any]]:
    """Load an SAE, and note exactly what was loaded."""
    with downloads(None) as files:
        # Norms are not folded: what they are belongs to how it is trained on.
        sae = inference_form(ref.load("cpu"), fold=False)
    check_weights(sae, ref.name)
    pinned = ref
    if ref.folder is not None:
        files = [path for path in map(ref.folder.joinpath, SAE_FILES) if path.is_file()]
        license = ref.license or read_record(ref.folder).license
    else:
        repo, _ = get_repo_id_and_folder_name(ref.source, ref.sae_id or "")
        found = (re.search(_COMMIT, each.as_posix()) for each in files)
        commit = next((match[1] for match in found if match), None)
        license = ref.license or _license_on_hub(repo, commit)
        pinned = replace(ref, release=ref.source, repo=repo, revision=commit)
    sha256 = {path.name: sha256_of(path) for path in files}
    if ref.sha256 and ref.sha256 != sha256:
        raise UserError("sha256", "be as recorded", sha256, of=ref.name)
    return replace(pinned, sha256=sha256, license=license), sae


def check_weights(sae: SAE[Any], shown: object, *, published: bool = False) -> None:
    """Raise unless the tensors of an SAE, as it is begun with or published, make sense."""
    trained_as = str(sae.cfg.metadata.training_architecture)
    trained_class, _ = SAE_TRAINING_CLASS_REGISTRY.get(trained_as, (object, object))
    learned = issubclass(trained_class, BatchTopKTrainingSAE)  # which learns its threshold
    # By the norms of the decoder's rows: one of 0 makes NaN of its latent.
    divides = getattr(sae.cfg, "rescale_acts_by_decoder_norm", False)
    for name, tensor in sae.state_dict().items():
        is_threshold = published and name == "threshold"
        for wrong, should in (
            (not tensor.isfinite().all(), "be finite"),
            (is_threshold and (tensor < 0).any(), "not be negative"),
            (is_threshold and learned and not tensor.any(), "have been learned"),
            (name == "W_dec" and not tensor.any(), "not be 0 everywhere"),
            (name == "W_dec" and divides and not tensor.norm(dim=-1).all(), "have no row of 0"),
        ):
            if wrong:
                raise UserError(name, should, of=shown)


def _license_on_hub(repo: str, commit: str | None) -> str | None:
    """The licence that a repository's card says."""
    try:
        card = hf_hub_download(repo, "README.md", revision=commit)
    except (OSError, ValueError):  # the Hub's, the network's, and of a name that is none
        return None
    data = metadata_load(card) or {}
    license = data.get("license_name") or data.get("license")
    return str(license) if license else None
