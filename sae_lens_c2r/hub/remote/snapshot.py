"""What a repository holds at one moment. Taking a snapshot writes nothing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile

from sae_lens_c2r.hub.target import Target


@dataclass(frozen=True)
class Snapshot:
    """What a branch of a repository holds at one commit.

    Args:
        commit: The commit; `None` if there is no such branch.
        tree: Its files by their paths.
        read: Reads a file by its path; `None` if there is none.
        private: Whether the repository is; `None` if there is none.
    """

    commit: str | None = None
    tree: Mapping[str, RepoFile] = field(default_factory=dict)
    read: Callable[[str], bytes | None] = lambda _: None
    private: bool | None = None


def take_snapshot(api: HfApi, target: Target) -> Snapshot:
    """What a branch on the Hub holds: nothing, if it or the repository does not exist."""
    repo_id = target.repo_id
    try:
        info = api.model_info(repo_id, revision=target.revision)
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
