"""Models run over a text, and give what SAEs were trained on."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from datasets import Dataset
from sae_lens import SAE
from transformer_lens import HookedTransformer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.models import loading
from sae_lens_c2r.models.text_source import OFFLINE_DATASET, TextSource
from tests.architectures.training import make_sae
from tests.language_model import CONTEXT, D_MODEL, HOOK, rows_of_tokens, texts, tiny_model

IN = "blocks.0.hook_resid_pre"  # before the model's only block
pytestmark = pytest.mark.filterwarnings("ignore")  # SAELens's, of so small a dataset


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that are loaded, none of them by the network."""
    names = []

    def load(_class: str, name: str, **_: Any) -> HookedTransformer:
        names.append(name)
        if name != "tiny":
            raise OSError(f"{name} is not a model")
        return tiny_model()

    monkeypatch.setattr(loading, "load_model", load)
    return names


def save(folder: Path, **metadata: Any) -> Path:
    """An SAE of the tiny model."""
    sae = make_sae("topk_c2r", d_in=metadata.pop("d_in", D_MODEL))
    about = {"model_name": "tiny", "hook_name": HOOK, "context_size": CONTEXT}
    about |= {"prepend_bos": False, "exclude_special_tokens": [0, 7], **metadata}
    for name, value in about.items():
        setattr(sae.cfg.metadata, name, value)
    sae.save_inference_model(folder)
    return folder


def load(folder: Path, **metadata: Any) -> SAE[Any]:
    return SAE.load_from_disk(save(folder, **metadata))


def source(
    text: Any = None, *, n_tokens: int = 1000, device: str = "cpu", **options: Any
) -> Any:
    text = rows_of_tokens() if text is None else text
    if not isinstance(text, str):
        folder = mkdtemp()
        text.save_to_disk(folder)
        text = folder
    return ActivationSource(TextSource(text), n_tokens=n_tokens, device=device, **options)


def test_what_is_read_are_the_models_activations(tmp_path: Path) -> None:
    tokens = torch.tensor(rows_of_tokens()["tokens"])
    _, cache = tiny_model().run_with_cache(tokens, prepend_bos=False)
    kept = ~torch.isin(tokens, torch.tensor([0, 7]))
    text = source().activations(load(tmp_path / "sae"), "sae")
    torch.testing.assert_close(text.activations, cache[HOOK][kept])
    assert torch.equal(text.rows, tokens)
    assert torch.equal(text.places, kept.nonzero())
    inside = source().activations(load(tmp_path / "inside", seqpos_slice=(2, -1)), "sae")
    torch.testing.assert_close(inside.activations, cache[HOOK][:, 2:-1][kept[:, 2:-1]])
    assert torch.equal(inside.rows, tokens[:, 2:-1])


def test_an_sae_whose_inputs_were_scaled_by_nobody_knows_what_reads_no_text(
    tmp_path: Path,
) -> None:
    sae = load(tmp_path / "sae")
    sae.cfg.normalize_activations = "expected_average_only_in"
    with pytest.raises(UserError, match=r"or activation_scaler\.json lie beside the weights"):
        source().activations(sae, "mine")


def test_the_place_of_a_model_in_a_training_is_not_that_of_its_inspection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Mock(side_effect=ValueError("seen"))
    monkeypatch.setattr(loading, "load_model", double)
    for place, kept in (("cuda:7", {}), ("auto", {"device_map": "auto"})):
        options = {"device_map": place, "dtype": "float32", "n_devices": 2}
        sae = load(tmp_path / place, model_from_pretrained_kwargs=options, model_class_name="x")
        with pytest.raises(ValueError, match="seen"):
            source().activations(sae, "mine")
        asked = double.call_args.kwargs["model_from_pretrained_kwargs"]
        assert asked == {"dtype": "float32", **kept}


def test_what_a_model_prints_while_it_is_loaded_is_not_among_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loading, "load_model", lambda *_, **__: print("Loaded") or tiny_model())
    source().activations(load(tmp_path / "sae"), "mine")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("key", ["model_name", "hook_name", "context_size"])
def test_no_model_is_loaded_for_an_sae_that_says_too_little(
    key: str, tmp_path: Path, loaded: list[str]
) -> None:
    sae = load(tmp_path / "sae", **{key: None})
    with pytest.raises(UserError, match=rf"^mine: `metadata\.{key}`"):
        source().activations(sae, "mine")
    assert loaded == []


@pytest.mark.parametrize("form", ["transcoder", "jumprelu_skip_transcoder", "temporal"])
def test_what_does_not_reconstruct_its_inputs_is_not_run_on_text(form: str) -> None:
    sae = Mock(cfg=Mock(architecture=lambda: form))
    with pytest.raises(UserError, match=f"A {form} does not"):
        source().reading_of(sae)


def test_another_model_has_not_the_revision_of_the_sae_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Mock(return_value=tiny_model())
    monkeypatch.setattr(loading, "load_model", double)
    own = {"revision": "c0ffee"}
    sae = load(tmp_path / "sae", model_name="gpt2-small", model_from_pretrained_kwargs=own)
    for model, options in ((None, own), ("openai-community/gpt2", own), ("gpt2-medium", {})):
        read = source(instead={"model_name": model} if model else {})
        read.model_of(read.reading_of(sae))
        assert double.call_args.kwargs["model_from_pretrained_kwargs"] == options


def test_a_model_runs_once_for_the_same_inputs(tmp_path: Path, loaded: list[str]) -> None:
    read = source()
    others = [{"exclude_special_tokens": [3]}, {"seqpos_slice": (1, None)}, {"hook_name": IN}]
    for number, other in enumerate(others):
        # Whatever else their trainings differed in.
        first = read.activations(load(tmp_path / f"a{number}", training_architecture="x"), "a")
        assert read.activations(load(tmp_path / f"b{number}", l0=32.0), "b") is first
        second = read.activations(load(tmp_path / f"c{number}", **other), "c")
        same = first.activations.shape == second.activations.shape
        assert not same or not torch.equal(first.activations, second.activations)
    assert loaded == ["tiny"]
    # What SAELens takes where a config says nothing, or a number of other bits.
    said = {"model_class_name": "HookedTransformer", "seqpos_slice": (None,)}
    said |= {"sequence_separator_token": "bos", "exclude_special_tokens": True}
    unsaid = dict.fromkeys([*said, "model_from_pretrained_kwargs"])
    del unsaid["sequence_separator_token"]
    first = read.activations(load(tmp_path / "said", **said), "a")
    assert (
        read.activations(load(tmp_path / "unsaid", **unsaid).to(torch.bfloat16), "b") is first
    )
    alone = load(tmp_path / "alone", sequence_separator_token=None)
    assert read.activations(alone, "c") is not first


def test_what_an_sae_does_not_say_is_said(tmp_path: Path) -> None:
    told: list[str] = []
    reader = source(tell=told.append)
    for name in ("other", "mine"):  # each, though the second one's text was read already
        reader.activations(load(tmp_path / name), name)
    assert [line.partition(":")[0] for line in told] == ["other", "mine"]
    assert told[1:] == [
        "mine: It does not say how its text was read. Taken: sequence_separator_token = bos, "
        "disable_concat_sequences = False, use_chat_formatting = False, "
        "seqpos_slice = (None,), max_activation_norm_multiple = None."
    ]


@pytest.mark.parametrize("n_tokens", [1, CONTEXT, CONTEXT + 3, 33 * CONTEXT - 1, 10**6])
def test_no_more_tokens_are_read_than_asked_for(tmp_path: Path, n_tokens: int) -> None:
    """Special ones, which no SAE is trained on, are counted as well."""
    sae = load(tmp_path / "sae", exclude_special_tokens=False)
    found = source(rows_of_tokens(70), n_tokens=n_tokens).activations(sae, "x")
    n_read = min(n_tokens, 70 * CONTEXT)
    assert len(found.activations) == len(found.places) == n_read
    assert found.rows.shape == (-(-n_read // CONTEXT), CONTEXT)
    last = torch.tensor([(n_read - 1) // CONTEXT, (n_read - 1) % CONTEXT])
    assert torch.equal(found.places[-1], last)


def test_all_special_tokens_can_be_left_out(tmp_path: Path) -> None:
    special = tiny_model().tokenizer.all_special_ids
    rows = Dataset.from_dict({"tokens": [[special[0], 5, 6, 7, special[1], 8, 9, 10]]})
    left_out = load(tmp_path / "all", exclude_special_tokens=True)
    kept = load(tmp_path / "none", exclude_special_tokens=False)
    assert source(rows).activations(left_out, "x").places[:, 1].tolist() == [1, 2, 3, 5, 6, 7]
    assert len(source(rows).activations(kept, "x").places) == CONTEXT
    # SAELens's evaluation leaves them out, too, unless it is told otherwise.
    unsaid = load(tmp_path / "unsaid", exclude_special_tokens=None)
    assert len(source(rows).activations(unsaid, "x").places) == CONTEXT - 2


def test_documents_are_joined_as_the_sae_says(tmp_path: Path) -> None:
    two = Dataset.from_dict({"text": ["one two", "three four five six seven eight"]})
    for said, joined in (({}, False), ({"sequence_separator_token": 5}, True)):
        sae = load(tmp_path / str(joined), **said)
        assert (5 in source(two).activations(sae, "x").rows) == joined


@pytest.mark.parametrize("text", ["text.txt", OFFLINE_DATASET])
def test_any_model_reads_any_text_in_place_of_the_one_in_the_config(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(" ".join(texts()["text"]))
    sae = load(tmp_path / "sae", model_name="no-such-model")
    with pytest.raises(OSError, match="no-such-model is not a model"):
        source(text).activations(sae, "x")
    instead = {"model_name": "tiny", "context_size": CONTEXT - 1}
    found = source(text, instead=instead, n_tokens=20).activations(sae, "x")
    assert (found.rows.shape[1], found.text, found.model) == (CONTEXT - 1, text, "tiny")
