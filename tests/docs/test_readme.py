"""The README is short, and begins with what there is to see."""

from tests.forkserver import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_first_40_lines_end_with_the_demos_table() -> None:
    shown = [line for line in README.splitlines() if not line.startswith("<!--")]
    assert any(line.startswith("| `batchtopk_c2r` | 0.") for line in shown[:40])


def test_it_is_read_in_a_few_minutes() -> None:
    assert len(README.splitlines()) <= 120


def test_the_paper_and_its_authors_code_are_cited() -> None:
    assert "https://arxiv.org/abs/2606.30609" in README
    assert "https://github.com/hr-jin/Cross-sample-Consistency-Regularization" in README
