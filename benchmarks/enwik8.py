"""Articles of Wikipedia, out of a package of Python.

`python -m benchmarks.enwik8` writes them as a text to train on, a line of JSON each.
"""

import gzip
import json
import random
import re
import subprocess
import sys
import tarfile
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import cache
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import sha256_of, write_text
from sae_lens_c2r.models.offline import cached_folder

ENWIK8 = "enwik8"  # the first 100 MB of a dump of 2006, CC BY-SA
PACKAGE = "x-transformers==2.16.1"  # whose source archive brings the dump along
PACKAGE_SHA256 = "50f73b36c9aea2499a4b95145f44611bfe3887397377425cf1c7b6c5d18578cb"
SHA256 = "d52ea2118b505f79007e084b2f49acef9fd0e45fb481f84b2cab0a7191a7ef60"
_DUMP = "enwik8.gz"
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
        # titles, lists, what is left of tables
        (r"^[ \t]*(?:[=|!{}#*:;][^\n]*|[^\n]{0,40})$", ""),
        (r"\n\s*\n", "\n"),
    )
]


@cache
def articles() -> tuple[str, ...]:
    """The articles of enwik8 as plain text, in an order of their own, always the same."""
    dump = cached_folder(ENWIK8, SHA256, _download) / _DUMP
    raw = _TEXT.findall(gzip.decompress(dump.read_bytes()).decode("utf-8"))
    random.Random(0).shuffle(raw)  # the first ones are all from A to B
    plain = (_plain(text) for text in raw if not text.lower().startswith("#redirect"))
    return tuple(text for text in plain if len(text) >= _SHORTEST)


def _plain(text: str) -> str:
    text = unescape(unescape(text))  # entities of XML, and those of the article
    for pattern, kept in _MARKUP:
        text = pattern.sub(kept, text)
    return text.strip()


def _download(to: Path) -> None:
    """Download the package's source from the user's index, and take the dump out of it."""
    with TemporaryDirectory(dir=to) as folder:
        options = ["--quiet", "--no-deps", "--no-binary=:all:", f"--dest={folder}"]
        options += ["--disable-pip-version-check"]  # whose advice would stand last
        # pip checks the hash before it has the package build itself.
        wanted = Path(folder, "requirements.txt")
        wanted.write_text(f"{PACKAGE} --hash=sha256:{PACKAGE_SHA256}\n", encoding="utf-8")
        options += ["--require-hashes", f"--requirement={wanted}"]
        command = [sys.executable, "-m", "pip", "download", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or ["It printed nothing."]
            raise UserError(
                f"The text {ENWIK8} should be in the source of {PACKAGE}, which pip could not "
                f"download: {reason[0]}"
            )
        with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as source:
            name = next(each for each in source.getnames() if each.endswith(f"/{_DUMP}"))
            (to / _DUMP).write_bytes(cast(IO[bytes], source.extractfile(name)).read())
    found = sha256_of(to / _DUMP)
    if found != SHA256:
        raise UserError(Path(_DUMP), f"have SHA-256 {SHA256}", f"{found} in {PACKAGE}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the articles, in their order."""
    parser = ArgumentParser(prog="python -m benchmarks.enwik8", description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path("enwik8.jsonl"), help="enwik8.jsonl")
    out = parser.parse_args(arguments).out
    write_text(out, "".join(json.dumps({"text": text}) + "\n" for text in articles()))
    print(out)


if __name__ == "__main__":
    main()
