"""What the pages print works as printed."""

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.experiment import world_module
from tests import forkserver
from tests.command import run, run_command
from tests.docs.blocks import NEEDS, PAGES, PYTHON, SHELL, SHOWN, Block, blocks_of, to_run
from tests.docs.commands import FEWER_ROWS, FEWER_STEPS, Shell
from tests.forkserver import ROOT
from tests.hub.server import TOKEN, serving

PUBLISH, TRAIN = (ROOT / "docs" / f"{name}.md" for name in ("publish", "train"))
EVALUATE = "sae-lens-c2r evaluate demo-output"
SMALLER = {  # what would take minutes
    "README.md": {"training_tokens=60_000": "training_tokens=8_000", "10000": "1000"},
    "finetune.md": {
        "--tokens 200000": "--tokens 1024 --text python-documentation --split 'train[-50:]'"
        " --set runner.n_batches_for_norm_estimate=2"
    },
    **{key: {EVALUATE: f"{EVALUATE} {FEWER_ROWS}"} for key in ("evaluate.md", "publish.md")},
}
SHELL_BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.language in SHELL]


def smaller(page: Path, text: str) -> str:
    """The text of a page's blocks, with less to do."""
    changes = SMALLER.get(page.name, {"": ""})
    assert any(old in text for old in changes)
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_found_and_of_a_known_kind(page: Path) -> None:
    blocks = blocks_of(page)
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(blocks)
    assert {block.language for block in blocks} <= SHELL | PYTHON | SHOWN
    assert {block.needs for block in blocks} <= {*NEEDS, None}


@pytest.mark.parametrize(
    ("page", "whole"),
    [
        *((page, False) for page in PAGES if to_run(page, PYTHON)),
        pytest.param(ROOT / "README.md", True, marks=pytest.mark.exhaustive),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_python_lines_run_one_after_the_other(page: Path, whole: bool, tmp_path: Path) -> None:
    (tmp_path / "hub_cards").symlink_to(ROOT / "hub_cards")
    lines = "\n".join(to_run(page, PYTHON))
    process = forkserver.run("-c", lines if whole else smaller(page, lines), cwd=tmp_path)
    assert process.returncode == 0, process.stderr


def test_shell_lines_run_one_after_the_other(tmp_path: Path) -> None:
    """The blocks of all pages run in one folder, which has the demo's SAEs."""
    (tmp_path / "hub_cards").symlink_to(ROOT / "hub_cards")
    shell = Shell.in_folder(tmp_path)
    shell.run(f"sae-lens-c2r train smollm2-demo --out demo-output {FEWER_STEPS}")
    pages = [page for page in PAGES if page != PUBLISH and to_run(page, SHELL)]
    assert pages
    for page in pages:
        shell.run(smaller(page, "\n".join(to_run(page, SHELL))))

    # From the demo's output to an environment without us, line by line.
    start, commands = to_run(PUBLISH, SHELL)
    assert start == "python -m tests.hub.server\n"
    assert f"HF_ENDPOINT=http://127.0.0.1:8899 HF_TOKEN={TOKEN}" in commands
    printed = smaller(PUBLISH, commands).splitlines()
    assert printed[-3:-1] == ["python -m venv plain", "plain/bin/pip install sae-lens"]
    (tmp_path / "storage").mkdir()
    with serving(tmp_path / "storage") as hub:
        script = "\n".join([*printed[:-3], printed[-1]])
        output = shell.run(script.replace("http://127.0.0.1:8899", hub.endpoint))
        assert hub.repos["me/smollm2-demo"].private
    assert "Nothing was sent" in output
    assert "JumpReLUSAE(" in output


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=lambda block: block.page.name)
def test_shell_lines_name_what_there_is(block: Block) -> None:
    """Every option, target and module exists, also in blocks that are not run."""
    subprocess.run(["bash", "-n", "-c", block.text], check=True)
    for line in block.text.replace("\\\n", " ").splitlines():  # those that go on are joined
        command = re.sub("(^|  )#.*", "", line).strip()
        if ours := re.search(r"^sae-lens-c2r (.*)|-m sae_lens_c2r (.*)", command):
            assert run(*(ours[1] or ours[2]).split(), "--help") == 0, command
        if target := re.match(r"make (.*)", command):
            subprocess.run(["make", "-n", target[1]], cwd=ROOT, check=True, capture_output=True)
        if module := re.search(r"python -m ((?:benchmarks|tests)\.\S+)", command):
            assert find_spec(module[1]), command
        if world := re.search(r"python -m benchmarks (\S+)(?: --size (\S+))?", command):
            sizes = world_module(world[1]).SIZES
            assert world[2] is None or world[2] in sizes, command


def test_a_dry_run_prints_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = [block for block in blocks_of(TRAIN) if block.language == "text"]
    monkeypatch.setenv("COLUMNS", "110")
    ran = run_command("train", "gemma-2-2b-layer-12", "--dry-run", "--device", "cpu")
    printed = _lines(block.text)
    assert len(printed) == 2
    assert printed == _lines(ran.stdout)[-2:]


def _lines(text: str) -> list[str]:
    """The lines that are not empty, whatever their columns' widths are."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


[PROGRAM] = [block for block in to_run(ROOT / "README.md", PYTHON) if "runner.run()" in block]
ROW = r"\| (0\.\d+) \| (0\.\d+) \|"  # composition and unexplained variance, in train.md
PRINTED = r": composition (0\.\d+), unexplained (0\.\d+)"
VARIANTS = [  # a line of the README's program, what it becomes, and where its numbers are told
    ("", "", rf"\| as in the README {ROW}"),
    ("lr=1e-3", "lr=3e-4", rf"\| `lr` 3e-4 [^|]*{ROW}"),
    ("tokens=256", "tokens=1_024", rf"\| `train_batch_size_tokens` 1,024 [^|]*{ROW}"),
    ("window=100", "window=1_000", rf"\| `dead_feature_window` 1,000 [^|]*{ROW}"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("line", "becomes", "told"), VARIANTS)
def test_the_program_prints_what_the_pages_say(
    line: str, becomes: str, told: str, tmp_path: Path
) -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "README.md", TRAIN)]
    expected = re.findall(told, pages[1])
    assert line in PROGRAM
    process = forkserver.run("-c", PROGRAM.replace(line, becomes), cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    printed = re.findall(PRINTED, process.stdout)
    of_readme = re.findall(PRINTED, pages[0]) if not line else printed
    assert (len(expected), len(printed), len(of_readme)) == (1, 2, 2)  # with C2R comes last
    for said, found in zip([*expected, *of_readme], [printed[-1], *printed], strict=True):
        for one, other in zip(said, found, strict=True):
            assert abs(float(one) - float(other)) < 0.02  # as CPUs round differently
