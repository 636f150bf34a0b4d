"""Models run over a text where SAEs take their inputs; what keeps them from it is one line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from huggingface_hub.errors import LocalEntryNotFoundError
from sae_lens import SAE
from transformer_lens import HookedTransformer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.cli import main
from sae_lens_c2r.inspection import activations
from sae_lens_c2r.inspection.activations import ActivationSource, activation_source, read_text
from sae_lens_c2r.inspection.measures import measure_on_text
from sae_lens_c2r.offline.corpus import OFFLINE_DATASET
from tests.architectures.training import make_sae
from tests.language_model import CONTEXT, D_MODEL, HOOK, TEXTS, rows_of_tokens, tiny_model

IN = "blocks.0.hook_resid_pre"  # before the model's only block
pytestmark = pytest.mark.filterwarnings("ignore")  # SAELens's, of so small a dataset


@pytest.fixture(autouse=True)
def model_of_every_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that needs no network."""

    def load(_class: str, name: str, **_: Any) -> HookedTransformer:
        if name != "tiny":
            raise OSError(f"{name} is not a model")
        return tiny_model()

    monkeypatch.setattr(activations, "load_model", load)


def save(folder: Path, **metadata: Any) -> Path:
    """An SAE of the tiny model."""
    sae = make_sae("topk_c2r", d_in=metadata.pop("d_in", D_MODEL))
    about: dict[str, Any] = {
        "model_name": "tiny",
        "hook_name": HOOK,
        "context_size": CONTEXT,
        "prepend_bos": False,
        "exclude_special_tokens": [0, 7],
        **metadata,
    }
    for name, value in about.items():
        setattr(sae.cfg.metadata, name, value)
    sae.save_inference_model(folder)
    return folder


def reader(text: Any) -> ActivationSource:
    return ActivationSource(text, model=None, n_tokens=1000, device="cpu")


def test_what_is_observed_is_what_the_sae_does_on_the_models_activations(
    tmp_path: Path,
) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae"))
    tokens = torch.tensor(rows_of_tokens()["tokens"])
    _, cache = tiny_model().run_with_cache(tokens, prepend_bos=False)
    kept = ~torch.isin(tokens, torch.tensor([0, 7]))
    inputs = cache[HOOK][kept]
    acts = sae.encode(inputs)
    read = reader(rows_of_tokens())
    text = read.activations(sae, "sae")
    torch.testing.assert_close(text.activations, inputs)
    assert torch.equal(text.rows, tokens)
    assert torch.equal(text.places, kept.nonzero())
    found = measure_on_text(sae, text)
    assert found.n_tokens == len(inputs)
    assert found.numbers["l0"] == pytest.approx((acts != 0).sum(dim=1).double().mean().item())
    torch.testing.assert_close(found.frequencies, (acts != 0).float().mean(dim=0))
    assert found.numbers["dead_latents"] == int((found.frequencies == 0).sum())
    for pair in found.pairs:
        first, second = (acts[:, latent.index] for latent in pair.latents)
        assert pair.times_fired_together == int(((first > 0) & (second > 0)).sum())
        assert pair.latents[0].top_tokens[0].activation == pytest.approx(first.max().item())


def test_a_slice_of_the_rows_is_what_the_sae_was_trained_on(tmp_path: Path) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae", seqpos_slice=(2, -1)))
    text = reader(rows_of_tokens()).activations(sae, "sae")
    assert text.rows.shape[1] == CONTEXT - 3
    assert len(text.activations) == len(text.places)


def test_the_report_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.jsonl"
    text.write_text("".join(json.dumps({"text": each}) + "\n" for each in TEXTS))
    wrong = {
        "no-model": save(tmp_path / "no-model", model_name="none"),
        "no-hook": save(tmp_path / "no-hook", hook_name="blocks.7.hook_resid_post"),
        "width": save(tmp_path / "width", d_in=5),
        "no-context": save(tmp_path / "no-context", context_size=None),
    }
    out = tmp_path / "report.html"
    arguments = ["inspect", str(save(tmp_path / "sae")), *map(str, wrong.values())]
    arguments += ["--text", str(text), "--out", str(out), "--device", "cpu"]
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 1
    shown = capsys.readouterr()
    assert "explained" in shown.out
    errors = shown.err.splitlines()
    assert len(errors) == len(wrong)
    for error, path in zip(errors, wrong.values(), strict=True):
        assert error.startswith(f"{path}: `model` should")
    html = out.read_text()
    assert html.count("<svg") == 3
    assert all(f">{path}</th>" in html for path in wrong.values()), "lost what was found"


def test_a_text_that_is_too_short_is_refused_with_what_it_takes(tmp_path: Path) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae"))
    short = tmp_path / "short.txt"
    short.write_text("two words")
    said = (
        rf"^mine: `text` should fill a row of the model's context, {CONTEXT} tokens\. Found 2"
    )
    with pytest.raises(UserError, match=said):
        reader(read_text(str(short))).activations(sae, "mine")


def test_an_sae_that_names_no_model_or_hook_is_told_what_it_lacks(tmp_path: Path) -> None:
    nameless = SAE.load_from_disk(save(tmp_path / "a", model_name=None))
    with pytest.raises(
        UserError, match=r"^a: `model` should be given: .*`metadata\.model_name`"
    ):
        reader(rows_of_tokens()).activations(nameless, "a")
    anywhere = SAE.load_from_disk(save(tmp_path / "b", hook_name=None))
    with pytest.raises(UserError, match=r"^b: .*should have a hook as `metadata\.hook_name`"):
        reader(rows_of_tokens()).activations(anywhere, "b")


def test_no_model_is_loaded_for_an_sae_that_reads_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of known features: there is neither a hook nor a row of tokens."""
    monkeypatch.setattr(activations, "load_model", lambda *_, **__: pytest.fail("loaded"))
    wanted = {"hook_name": "should have a hook", "context_size": "rows", "prepend_bos": "rows"}
    for name, said in wanted.items():
        sae = SAE.load_from_disk(save(tmp_path / name, **{name: None}))
        read = ActivationSource(rows_of_tokens(), model="tiny", n_tokens=1000, device="cpu")
        with pytest.raises(UserError, match=rf"^mine: .*{said}.*`metadata\.{name}`"):
            read.activations(sae, "mine")


def test_of_a_long_error_the_first_sentence_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TransformerLens's lists every model that it knows."""

    def fail(*_: object, **__: object) -> None:
        raise ValueError(message)

    monkeypatch.setattr(activations, "load_model", fail)
    sae = SAE.load_from_disk(save(tmp_path / "sae"))
    message = f"x not found. Valid official model names: {['gpt2'] * 1000}"
    with pytest.raises(UserError, match=r"on the text\. x not found\.$"):
        reader(rows_of_tokens()).activations(sae, "mine")
    message = "x" * 5000
    with pytest.raises(UserError, match=r"x…$") as caught:
        reader(rows_of_tokens()).activations(sae, "mine")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "files",
    [
        {"a.jsonl": b'{"text": "one two"}\n', "b.jsonl": b'{"text": '},
        {"a.txt": b"\xff\xfe\x00"},
        {"a.jsonl": b'{"content": "x"}\n'},
        {"a.bin": b"x"},
    ],
    ids=["the second broken", "no UTF-8", "no text", "nothing known"],
)
def test_a_folder_with_what_is_no_text_is_named(
    files: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sae = SAE.load_from_disk(save(tmp_path / "sae"))
    said = f"mine: `text` should be text that can be read. {folder}: "
    with pytest.raises(UserError) as caught:
        activation_source(str(folder), model=None, n_tokens=1000, device="cpu").activations(
            sae, "mine"
        )
    assert str(caught.value).startswith(said)
    assert len(str(caught.value)) < len(said) + 300


def unreachable() -> Exception:
    """As transformers raises where it cannot download."""
    error = OSError("We couldn't connect to the Hub")
    error.__cause__ = LocalEntryNotFoundError("not in the cache")
    return error


def test_a_failure_of_the_network_is_called_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae"))

    def fail(*_: object, **__: object) -> None:
        raise unreachable()

    with monkeypatch.context() as patch:
        patch.setattr(activations, "load_model", fail)
        with pytest.raises(UserError, match=r"^x: The model tiny is not on this machine.*Hub"):
            reader(rows_of_tokens()).activations(sae, "x")
    monkeypatch.setattr(activations.ActivationsStore, "from_sae", fail)
    with pytest.raises(UserError, match=r"^x: The text org/text is not on this machine"):
        reader("org/text").activations(sae, "x")


def test_a_text_of_special_tokens_alone_is_refused(tmp_path: Path) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae"))
    special = Dataset.from_dict({"tokens": [[0, 7] * (CONTEXT // 2)] * 3})
    with pytest.raises(UserError, match="`text` should fill a row"):
        reader(special).activations(sae, "mine")


def test_saes_of_the_same_inputs_share_one_pass_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else their trainings differed in."""
    first = SAE.load_from_disk(save(tmp_path / "first", training_architecture="topk"))
    second = SAE.load_from_disk(save(tmp_path / "second", l0=32.0))
    read = reader(rows_of_tokens())
    text = read.activations(first, "first")
    monkeypatch.setattr(read, "_run", None)
    assert read.activations(second, "second") is text


@pytest.mark.parametrize(
    "metadata",
    [{"exclude_special_tokens": [3]}, {"seqpos_slice": (1, None)}, {"hook_name": IN}],
)
def test_saes_of_other_inputs_do_not(tmp_path: Path, metadata: dict[str, Any]) -> None:
    read = reader(rows_of_tokens())
    first = read.activations(SAE.load_from_disk(save(tmp_path / "first")), "first")
    second = read.activations(SAE.load_from_disk(save(tmp_path / "other", **metadata)), "other")
    same = first.activations.shape == second.activations.shape
    assert not same or not torch.equal(first.activations, second.activations)


def test_a_model_is_loaded_once_for_all_places_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []
    monkeypatch.setattr(
        activations, "load_model", lambda _, name, **__: loaded.append(name) or tiny_model()
    )
    read = reader(rows_of_tokens())
    for number, hook_name in enumerate((HOOK, IN)):
        sae = SAE.load_from_disk(save(tmp_path / str(number), hook_name=hook_name))
        assert read.model_of(sae) is read.model_of(sae)
        read.activations(sae, "x")
    assert loaded == ["tiny"]


def test_another_model_can_take_the_place_of_the_one_in_the_config(tmp_path: Path) -> None:
    sae = SAE.load_from_disk(save(tmp_path / "sae", model_name="no-such-model"))
    with pytest.raises(UserError, match="no-such-model is not a model"):
        reader(rows_of_tokens()).activations(sae, "x")
    read = ActivationSource(rows_of_tokens(), model="tiny", n_tokens=1000, device="cpu")
    assert len(read.activations(sae, "x").activations)


@pytest.mark.parametrize("n_tokens", [1, CONTEXT, CONTEXT + 3, 33 * CONTEXT - 1, 10**6])
def test_no_more_tokens_are_read_than_asked_for(tmp_path: Path, n_tokens: int) -> None:
    """Special ones, which no SAE is trained on, are counted as well."""
    sae = SAE.load_from_disk(save(tmp_path / "sae", exclude_special_tokens=False))
    read = ActivationSource(rows_of_tokens(70), model=None, n_tokens=n_tokens, device="cpu")
    found = read.activations(sae, "x")
    n_read = min(n_tokens, 70 * CONTEXT)
    assert len(found.activations) == len(found.places) == n_read
    assert found.rows.shape == (-(-n_read // CONTEXT), CONTEXT)
    last = torch.tensor([(n_read - 1) // CONTEXT, (n_read - 1) % CONTEXT])
    assert torch.equal(found.places[-1], last)


def test_all_special_tokens_can_be_left_out(tmp_path: Path) -> None:
    special = tiny_model().tokenizer.all_special_ids
    rows = Dataset.from_dict({"tokens": [[special[0], 5, 6, 7, special[1], 8, 9, 10]]})
    left_out = SAE.load_from_disk(save(tmp_path / "all", exclude_special_tokens=True))
    kept = SAE.load_from_disk(save(tmp_path / "none", exclude_special_tokens=False))
    assert reader(rows).activations(left_out, "x").places[:, 1].tolist() == [1, 2, 3, 5, 6, 7]
    assert len(reader(rows).activations(kept, "x").places) == CONTEXT


def test_the_offline_text_goes_with_its_own_model() -> None:
    with pytest.raises(UserError, match=f"`text` should not be {OFFLINE_DATASET} for gpt2"):
        activation_source(OFFLINE_DATASET, model="gpt2", n_tokens=1, device="cpu")


def test_a_text_of_ones_own_goes_with_any_model(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(" ".join(TEXTS))
    read = activation_source(str(path), model="tiny", n_tokens=1000, device="cpu")
    sae = SAE.load_from_disk(save(tmp_path / "sae", model_name="no-such-model"))
    assert read.activations(sae, "x").rows.shape[1] == CONTEXT


def test_a_file_is_one_document(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("One line,\nand another: ü.\n", encoding="utf-8")
    assert read_text(str(path))["text"] == ["One line,\nand another: ü.\n"]


def test_a_jsonl_file_has_a_document_in_every_line(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "one"}\n\n{"text": " "}\n{"id": 3, "text": "two"}\n')
    assert read_text(str(path))["text"] == ["one", "two"]


@pytest.mark.parametrize("name", ["org/dataset", "dataset", "org/data.set-2"])
def test_what_is_no_file_is_the_name_of_a_dataset(name: str, tmp_path: Path) -> None:
    assert read_text(name) == name
    assert read_text(str(tmp_path)) == str(tmp_path)  # `datasets` reads folders


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.txt", b" \n"),
        ("empty.jsonl", b""),
        ("other.jsonl", b'{"content": 1}\n'),
        ("number.jsonl", b'{"text": 1}\n'),
        ("list.jsonl", b"[1]\n"),
        ("broken.jsonl", b"{"),
        ("long.jsonl", b'{"content": "' + b"x" * 10_000 + b'"}'),
        ("binary.txt", b"\xff\xfe\x00"),
    ],
)
def test_a_file_without_text_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"^`text` should") as caught:
        read_text(str(path))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 200


@pytest.mark.parametrize("name", ["/no/such/file.txt", "no.txt", "./text", "a/b/c", "no.jsonl"])
def test_what_is_neither_a_file_nor_a_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"^`text` should"):
        read_text(name)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"^`text` should"):
        read_text(str(tmp_path / "pipe"))
