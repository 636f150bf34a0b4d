"""What the site has besides `docs`: pages and pictures of the repository, and links to it."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "docs/tutorial.ipynb": "tutorial.md",
}
PICTURES = {".png", ".svg"}
_LINK = re.compile(r"(?<=\]\()([^)#\s]+)((?:#[^)\s]*)?)(?=\))")
_log = logging.getLogger("mkdocs.hooks")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie elsewhere, and the pictures that pages show from there."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=_markdown(ROOT / name)))
    for source in DOCS.glob("*.md"):
        for target, _ in _LINK.findall(source.read_text("utf-8")):
            path = (DOCS / target).resolve()
            if path.suffix in PICTURES and DOCS not in path.parents:
                name = path.relative_to(ROOT).as_posix()
                if files.get_file_from_path(name) is None:
                    files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Have links lead to where their file is on the site, or else in the repository."""
    names = {on_site: name for name, on_site in PAGES.items()}
    name = page.file.src_uri
    folder = (ROOT / names.get(name, f"docs/{name}")).parent

    def moved(link: re.Match[str]) -> str:
        target, anchor = link.groups()
        if ":" in target:
            return link[0]
        path = (folder / target).resolve()
        if not path.exists():
            _log.warning("%s links to %s, which does not exist.", name, target)
            return link[0]
        return _place(path, files, config) + anchor

    return _LINK.sub(moved, markdown)


def _place(path: Path, files: Files, config: Any) -> str:
    """Where a file or folder of the repository is, for a page at the top of the site."""
    name = path.relative_to(ROOT).as_posix()
    on_site = PAGES.get(name, name.removeprefix("docs/"))
    if files.get_file_from_path(on_site) is not None:
        return on_site
    kind = "tree" if path.is_dir() else "blob"
    return f"{config.repo_url}/{kind}/main/{name}"


def _markdown(path: Path) -> str:
    """The Markdown of a page: a notebook's is that of its cells and of what they show."""
    text = path.read_text("utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n\n".join(part for cell in json.loads(text)["cells"] for part in _of_cell(cell))


def _of_cell(cell: dict[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            yield f"![](data:image/png;base64,{''.join(data['image/png']).strip()})"
        elif "text/html" in data:
            yield "".join(data["text/html"])
        elif shown := output.get("text") or data.get("text/plain"):
            yield f"```text\n{''.join(shown).rstrip()}\n```"
