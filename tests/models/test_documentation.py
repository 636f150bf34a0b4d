"""The demo's text."""

from pathlib import Path

import torch

from sae_lens_c2r.models import offline
from sae_lens_c2r.models.offline import CLS, SEP
from tests.forkserver import call


def write_documents(path: Path) -> None:
    path.write_text(repr(offline.documents()))


def test_documents_are_prose_and_each_comes_once(tmp_path: Path) -> None:
    documents = offline.documents()
    assert len(documents) > 3000
    assert len(set(documents)) == len(documents)
    assert any("Assert statements are a convenient way to insert" in text for text in documents)
    assert offline.documents_of("train[:2]+train[-1:]") == (*documents[:2], documents[-1])
    assert call(write_documents, tmp_path / "in another process").wait() == 0
    assert (tmp_path / "in another process").read_text() == repr(documents)


def test_rows_hold_the_text_in_order_between_special_tokens() -> None:
    def tokenizer(text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [1000 + int(word) for word in text.split()]}

    words = [str(i) for i in range(300)]
    texts = [" ".join(words[:200]), " ".join(words[200:])]
    rows = torch.tensor(list(offline.token_rows(texts, tokenizer)))
    assert rows.shape == (2, 128)
    assert (rows[:, 0] == CLS).all()
    assert (rows[:, -1] == SEP).all()
    assert torch.equal(rows[:, 1:-1].flatten(), 1000 + torch.arange(252))
    # A sentence is one shorter row.
    assert list(offline.token_rows(["1", "2"], tokenizer)) == [[CLS, 1001, 1002, SEP]]
