"""A repository on the Hub: what it holds, what a token may do there, and its refusals."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from glob import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, get_session, snapshot_download
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    BadRequestError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]
from huggingface_hub.utils.sha import git_hash
from sae_lens import SAE
from sae_lens.constants import SAE_CFG_FILENAME

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.hub.repo_record import RepoRecord
from sae_lens_c2r.hub.rules import MAIN, Target

MOVED = 412
PASSING = {None, 408, 409, MOVED, 429, 500, 502, 503, 504}  # None: no answer
_NOT_HERE = {401, 403, 404}


@dataclass(frozen=True)
class Snapshot:
    """The files of a branch of a repository, at one commit."""

    commit: str | None = None  # none if there is no such branch
    tree: Mapping[str, RepoFile] = field(default_factory=dict)  # by their paths
    read: Callable[[str], bytes | None] = lambda _: None  # a file, by its path
    private: bool | None = None  # `None` if there is no such repository

    def has(self, addition: CommitOperationAdd) -> bool:
        """Whether a file of the same content is there."""
        found = self.tree.get(addition.path_in_repo)
        if found is None or found.size != addition.upload_info.size:
            return False
        if found.lfs is not None:
            return found.lfs.sha256 == addition.upload_info.sha256.hex()
        with addition.as_file() as file:  # a small one
            return found.blob_id == git_hash(file.read())


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
        device: Device to load to.
        dtype: Type of the weights; `None` for the type in the SAE's config, in place of
            `SAE.from_pretrained`'s float32.
        token: Token of the Hub, as huggingface_hub takes it.

    Returns:
        The SAE, otherwise as `SAE.from_pretrained` would load it.

    Raises:
        UserError: If there is no such SAE at that revision.

    huggingface_hub raises `RepositoryNotFoundError`, `RevisionNotFoundError` and the errors of
    the network.
    """
    if Path(sae_id).is_absolute() or ".." in Path(sae_id).parts:
        raise UserError("sae_id", "be a folder in the repository", repr(sae_id))
    patterns = f"{escape(sae_id)}/*"
    folder = Path(
        snapshot_download(repo_id, revision=revision, allow_patterns=patterns, token=token)
    )
    if not (folder / sae_id / SAE_CFG_FILENAME).is_file():
        should = f"be a folder with a {SAE_CFG_FILENAME}, in {repo_id} at {revision}"
        raise UserError("sae_id", should, repr(sae_id))
    return SAE.load_from_disk(folder / sae_id, device=device, dtype=dtype)


def check_account(api: HfApi, target: Target) -> None:
    """Raise where the Hub tells beforehand that the token may not write to a repository."""
    api.whoami()
    with suppress(RepositoryNotFoundError):  # making it tells whether the token may
        api.auth_check(target.repo_id, write=not target.proposes)  # anybody may propose


def check_metadata(api: HfApi, card: str) -> None:
    """Raise unless the Hub accepts a card's metadata, which it is asked about."""
    content = {"content": card, "repoType": "model"}
    response = get_session().post(f"{api.endpoint}/api/validate-yaml", json=content)
    try:
        hf_raise_for_status(response)
    except BadRequestError as error:
        reason = " ".join((error.server_message or "").split())
        raise UserError(
            f"The card's metadata should be as the Hub wants it. {reason}"
        ) from None


def take_snapshot(api: HfApi, repo_id: str, revision: str) -> Snapshot:
    """Look at a branch or a commit: it has no files if it or the repository does not exist."""
    try:
        info = api.model_info(repo_id, revision=revision)
    except RevisionNotFoundError:
        return Snapshot(private=bool(api.model_info(repo_id).private))
    except RepositoryNotFoundError:
        return Snapshot()
    entries = api.list_repo_tree(repo_id, revision=info.sha, recursive=True)
    tree = {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

    @cache
    def read(path: str) -> bytes | None:
        if path not in tree:
            return None
        with TemporaryDirectory() as folder:
            place = api.hf_hub_download(repo_id, path, revision=info.sha, local_dir=folder)
            return Path(place).read_bytes()

    return Snapshot(info.sha, tree, read, bool(info.private))


def look_at_branch(api: HfApi, target: Target) -> Snapshot:
    """Look at the branch of a target; where there is none, at `main`, of which it is made."""
    there = take_snapshot(api, target.repo_id, target.revision)
    if there.commit is None and there.private is not None:
        return replace(take_snapshot(api, target.repo_id, MAIN), commit=None)
    return there


def make_branch(
    api: HfApi, target: Target, before: Snapshot, tell: Callable[[str], None]
) -> None:
    """Make a branch, and its repository if there is none."""
    if before.private is None:
        tell(f"Making {target.repo_id}, {'public' if target.public else 'private'}.")
        api.create_repo(target.repo_id, private=not target.public, exist_ok=True)
    if target.revision != MAIN:
        tell(f"Making the branch {target.revision}.")
        api.create_branch(target.repo_id, branch=target.revision, exist_ok=True)


def as_the_hub_knows(api: HfApi, repo: RepoRecord, tell: Callable[[str], None]) -> RepoRecord:
    """Name the models and texts that the Hub has by their names there."""
    from sae_lens_c2r.models.loading import official_name

    saes = repo.saes.values()
    names = repo.base_models or [sae.model for sae in saes if sae.model]
    models: dict[str, str] = {}  # by their names here
    for name in sorted(set(names)):
        model = _ask(api.model_info, official_name(name), name)
        if model is None or "/" not in model.id:
            continue
        if model.private:
            tell(f"{model.id} is private: the card names the model in its text only.")
        else:
            models[name] = model.id
        if model.gated:
            tell(f"{model.id} is gated: users have to accept the model's terms on the Hub.")
    texts = {sae.dataset for sae in saes if sae.dataset and "/" in sae.dataset}
    found = [_ask(api.dataset_info, name) for name in sorted(texts)]
    datasets = [each.id for each in found if each and not each.private]
    renamed = dict(repo.saes)
    for sae_id, sae in repo.saes.items():
        if sae.model and (model_id := models.get(sae.model, sae.model)) != sae.model:
            own = {"model": model_id, "model_name": sae.model_name or sae.model}
            renamed[sae_id] = sae.model_copy(update=own)
    known = {"base_models": sorted({*models.values()}), "datasets": datasets}
    return repo.model_copy(update={**known, "saes": renamed})


def _ask(ask: Callable[[str], Any], *names: str | None) -> Any:
    """Return what the Hub says of the first name that this token may see."""
    for name in dict.fromkeys(filter(None, names)):
        try:
            return ask(name)
        except HFValidationError:
            continue
        except HTTPError as error:
            if status_of(error) not in _NOT_HERE:
                raise
    return None


def status_of(error: HTTPError) -> int | None:
    """Return what the Hub has answered; `None` if the network failed."""
    return error.response.status_code if isinstance(error, HfHubHTTPError) else None


def explain_hub_error(error: Exception, repo_id: str) -> str:
    """Explain an error of the Hub in a sentence, without the token."""
    if not isinstance(error, HTTPError):
        return f"{type(error).__name__}: {one_line(error)}"
    status = status_of(error)
    if status is None:
        return f"The Hub does not answer: is there a network? {one_line(error)}"
    server = " ".join((getattr(error, "server_message", None) or str(error)).split())
    says = f"The Hub says: {server.removesuffix('.')}."
    reasons = {
        401: "There is no token, or the Hub does not accept it. Run `hf auth login`, or set "
        f"HF_TOKEN to a token that may write. {says}",
        403: f"The token may not write to {repo_id}. {says} If that is not why: the token "
        "should have the role `write` or, if it is fine-grained, write access to that "
        "repository or its owner.",
        MOVED: "The branch keeps moving: somebody else is uploading to it.",
    }
    return reasons.get(status, f"The Hub answered {status}: {server}")
