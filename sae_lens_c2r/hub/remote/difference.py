"""Which files of an upload a repository does not have yet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha1, sha256
from pathlib import Path

from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.sha import sha_fileobj

from sae_lens_c2r.hub.remote.snapshot import Snapshot


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
        """Describe a file; of one on disk no more than a piece is in memory at a time."""
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
        """Whether what the Hub has in its place has the same content."""
        if found is None:
            return False
        if found.lfs is not None:
            return found.lfs.sha256 == self.sha256
        return found.blob_id == self.blob_id

    def has_changed(self) -> bool:
        """Whether it is no longer what it was when it was described."""
        if isinstance(self.content, bytes):
            return False
        try:
            return PlannedFile.of(self.path_in_repo, self.content) != self
        except OSError:
            return True


@dataclass(frozen=True)
class Difference:
    """What is to be changed in a repository.

    Args:
        snapshot: What it holds.
        files: Those that are missing there, or others.
        unchanged: How many are there already.
    """

    snapshot: Snapshot
    files: tuple[PlannedFile, ...]
    unchanged: int

    @property
    def replaced(self) -> frozenset[str]:
        """The paths of those that others are there of."""
        paths = (file.path_in_repo for file in self.files)
        return frozenset(path for path in paths if path in self.snapshot.tree)

    @property
    def size(self) -> int:
        """Bytes of the files to be sent."""
        return sum(file.size for file in self.files)


def difference(
    files: Callable[[Snapshot], Sequence[PlannedFile]], snapshot: Snapshot
) -> Difference:
    """Which files, given what a repository holds, it does not have."""
    wanted = files(snapshot)
    missing = [f for f in wanted if not f.is_there(snapshot.tree.get(f.path_in_repo))]
    return Difference(snapshot, tuple(missing), len(wanted) - len(missing))
