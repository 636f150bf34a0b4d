"""What an upload would change on the Hub. Looking asks for nothing to be written."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import sha_fileobj


@dataclass(frozen=True)
class PlannedFile:
    """A file to be on the Hub.

    Args:
        path_in_repo: Where.
        content: What it holds, or the file here that does.
        size: In bytes.
        sha256: Of its content.
        blob_id: Git's name of it, by which the Hub tells small files apart.
    """

    path_in_repo: str
    content: bytes | Path
    size: int
    sha256: str
    blob_id: str

    @classmethod
    def of(cls, path_in_repo: str, content: bytes | Path) -> "PlannedFile":
        """Describe a file; of one on disk no more than a piece is in memory at a time.

        Args:
            path_in_repo: Where it is to be.
            content: What it holds, or the file here that does.

        Returns:
            The file.
        """
        if isinstance(content, bytes):
            git = sha1(b"blob %d\0" % len(content) + content)
            digest = sha256(content).hexdigest()
            return cls(path_in_repo, content, len(content), digest, git.hexdigest())
        git = sha1(b"blob %d\0" % content.stat().st_size)
        with content.open("rb") as file:
            while piece := file.read(1 << 20):
                git.update(piece)
            file.seek(0)
            digest = sha_fileobj(file).hex()
        return cls(path_in_repo, content, content.stat().st_size, digest, git.hexdigest())

    def is_there(self, found: RepoFile | None) -> bool:
        """Whether the Hub has it already.

        Args:
            found: What the Hub has in its place.

        Returns:
            Whether that is the same.
        """
        if found is None:
            return False
        if found.lfs is not None:
            return found.lfs.sha256 == self.sha256
        return found.blob_id == self.blob_id


@dataclass(frozen=True)
class Plan:
    """What is to be changed.

    Args:
        repo_id: The repository.
        revision: The branch.
        repo_exists: Whether the repository does.
        parent: The commit that the branch is at; `None` if there is no such branch.
        files: Those that are missing there, or others.
        unchanged: How many are there already.
    """

    repo_id: str
    revision: str
    repo_exists: bool
    parent: str | None
    files: tuple[PlannedFile, ...]
    unchanged: int

    @property
    def size(self) -> int:
        """Bytes of the files to be sent."""
        return sum(file.size for file in self.files)


def make_plan(
    api: HfApi, repo_id: str, files: Sequence[PlannedFile], *, revision: str = "main"
) -> Plan:
    """Compare files with a branch on the Hub.

    Args:
        api: The Hub.
        repo_id: The repository.
        files: What is to be there.
        revision: The branch.

    Returns:
        The plan. For a repository or a branch that does not exist, everything is missing.

    Of huggingface_hub come the errors of the network, and of a token that is refused.
    """
    found: dict[str, RepoFile] = {}
    repo_exists, parent = True, None
    try:
        parent = api.model_info(repo_id, revision=revision).sha
    except RevisionNotFoundError:
        pass
    except RepositoryNotFoundError:
        repo_exists = False
    if parent is not None:
        tree = api.list_repo_tree(repo_id, revision=parent, recursive=True)
        found = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
    missing = tuple(file for file in files if not file.is_there(found.get(file.path_in_repo)))
    return Plan(repo_id, revision, repo_exists, parent, missing, len(files) - len(missing))
