"""What an upload would change on the Hub. Looking asks for nothing to be written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path
from tempfile import TemporaryDirectory

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


Read = Callable[[str], bytes | None]
Files = Callable[[Read], Sequence[PlannedFile]]


@dataclass(frozen=True)
class Plan:
    """What is to be changed.

    Args:
        repo_id: The repository.
        revision: The branch.
        private: Whether the repository is; `None` if there is none.
        parent: The commit that the branch is at; `None` if there is no such branch.
        files: Those that are missing there, or others.
        replaced: The paths of those that others are there of.
        unchanged: How many are there already.
    """

    repo_id: str
    revision: str
    private: bool | None
    parent: str | None
    files: tuple[PlannedFile, ...]
    replaced: frozenset[str]
    unchanged: int

    @property
    def repo_exists(self) -> bool:
        """Whether there is the repository."""
        return self.private is not None

    @property
    def size(self) -> int:
        """Bytes of the files to be sent."""
        return sum(file.size for file in self.files)


def make_plan(api: HfApi, repo_id: str, files: Files, *, revision: str = "main") -> Plan:
    """Compare files with a branch on the Hub.

    Args:
        api: The Hub.
        repo_id: The repository.
        files: What is to be there, given a function that reads what is: the content of a
            file by its path, or `None` if there is none.
        revision: The branch.

    Returns:
        The plan. For a repository or a branch that does not exist, everything is missing.

    Of huggingface_hub come the errors of the network, and of a token that is refused.
    """
    found: dict[str, RepoFile] = {}
    private: bool | None = None
    parent = None
    try:
        info = api.model_info(repo_id, revision=revision)
        private, parent = bool(info.private), info.sha
    except RevisionNotFoundError:
        private = bool(api.model_info(repo_id).private)
    except RepositoryNotFoundError:
        pass
    if parent is not None:
        tree = api.list_repo_tree(repo_id, revision=parent, recursive=True)
        found = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}

    def read(path: str) -> bytes | None:
        if path not in found:
            return None
        with TemporaryDirectory() as folder:
            place = api.hf_hub_download(repo_id, path, revision=parent, local_dir=folder)
            return Path(place).read_bytes()

    wanted = files(read)
    missing = tuple(file for file in wanted if not file.is_there(found.get(file.path_in_repo)))
    replaced = frozenset(file.path_in_repo for file in missing if file.path_in_repo in found)
    unchanged = len(wanted) - len(missing)
    return Plan(repo_id, revision, private, parent, missing, replaced, unchanged)
