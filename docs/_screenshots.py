"""Pictures of the demo's report and of a card: `python docs/_screenshots.py`, with Chromium."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from markdown import markdown
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
_SAES = "smollm2-135m-layer-9"
REPORT, CARD = ROOT / "demo-output" / "report.html", ROOT / "hub_cards" / _SAES / "README.md"
STYLE = (
    "body{font:16px/1.5 sans-serif;margin:24px;max-width:850px}table{border-collapse:collapse;"
    "font-size:14px}td,th{border:1px solid #ddd;padding:4px 8px}pre,code{background:#f4f4f6}"
    "pre{padding:12px}img{max-width:100%}"
)


def cosines() -> str:
    """The report's first figure."""
    text = REPORT.read_text(encoding="utf-8")
    return text[text.index("<svg") : text.index("</svg>")] + "</svg>\n"


def report() -> str:
    """The report from what became of redundant pairs on."""
    text = REPORT.read_text(encoding="utf-8")
    return text[: text.index("<h1")] + text[text.rindex("<h2", 0, text.index("its matches")) :]


def card() -> str:
    """The card as a page, without its metadata."""
    body = CARD.read_text(encoding="utf-8").split("---\n", 2)[2]
    html = markdown(body, extensions=["tables", "fenced_code"])
    return f'<base href="{CARD.as_uri()}"><style>{STYLE}</style>{html}'


def take(html: str, to: Path, height: int) -> None:
    """Write what a browser shows of a page, in 64 colors."""
    with TemporaryDirectory() as folder:
        page, picture = Path(folder) / "page.html", Path(folder) / "page.png"
        page.write_text(html, encoding="utf-8")
        command = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars"]
        command += [f"--screenshot={picture}", f"--window-size=960,{height}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True)
        Image.open(picture).convert("RGB").quantize(64).save(to, optimize=True)


if __name__ == "__main__":
    (ROOT / "docs" / "inspect.svg").write_text(cosines(), encoding="utf-8")
    take(report(), ROOT / "docs" / "report.png", 722)
    take(card(), ROOT / "docs" / "card.png", 770)
