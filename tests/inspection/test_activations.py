"""Models run over a text where SAEs take their inputs; what keeps them from it is one line."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from weakref import ref

import pytest
import torch
from datasets import Dataset
from huggingface_hub.errors import LocalEntryNotFoundError
from sae_lens import SAE
from transformer_lens import HookedTransformer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.inspection import activations
from sae_lens_c2r.inspection.activations import ActivationSource
from sae_lens_c2r.inspection.contexts import latents_in_context
from sae_lens_c2r.models.corpus import OFFLINE_DATASET
from sae_lens_c2r.models.text import Text, read_text
from sae_lens_c2r.models.text_source import TextSource
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

    monkeypatch.setattr(activations, "load_model", load)
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


def source(text: Any = None, *, n_tokens: int = 1000, **options: Any) -> Any:
    text = rows_of_tokens() if text is None else text
    is_name = isinstance(text, str)
    text = read_text(TextSource(text)) if is_name else Text(text, "a dataset")
    return ActivationSource(text, n_tokens=n_tokens, device="cpu", **options)


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


def test_what_takes_much_memory_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activations, "_WORTH_TELLING", 100)
    told: list[str] = []
    source(tell=told.append).activations(load(tmp_path / "sae"), "sae")
    assert told == ["The activations take 4.2 kB of memory."]


def test_an_sae_whose_inputs_were_scaled_by_nobody_knows_what_reads_no_text(
    tmp_path: Path,
) -> None:
    sae = load(tmp_path / "sae")
    sae.cfg.normalize_activations = "expected_average_only_in"
    with pytest.raises(UserError, match=r"or activation_scaler\.json lie beside the weights"):
        source().activations(sae, "mine")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_name": "none"}, f"no activations of width {D_MODEL} from none at"),
        (
            {"model_name": "/models/mine"},
            "`metadata.model_name` should be a folder with a conf",
        ),
        ({"hook_name": "x"}, "`metadata.hook_name` should be a hook of tiny. Found x."),
        ({"d_in": 5}, f"no activations of width 5 from tiny at {HOOK}. "),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"^mine: {re.escape(said)}"):
        source().activations(load(tmp_path / "sae", **change), "mine")


def test_the_place_of_a_model_in_a_training_is_not_that_of_its_inspection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Mock(side_effect=ValueError("seen"))
    monkeypatch.setattr(activations, "load_model", double)
    for place, kept in (("cuda:7", {}), ("auto", {"device_map": "auto"})):
        options = {"device_map": place, "dtype": "float32", "n_devices": 2}
        sae = load(tmp_path / place, model_from_pretrained_kwargs=options, model_class_name="x")
        with pytest.raises(UserError, match=r"^mine: no activations of width .* seen$"):
            source().activations(sae, "mine")
        asked = double.call_args.kwargs["model_from_pretrained_kwargs"]
        assert asked == {"dtype": "float32", **kept}


@pytest.mark.parametrize(("device", "dtype"), [("cpu", "float32"), ("mps", "bfloat16")])
def test_a_model_in_bfloat16_is_widened_on_a_cpu_alone(
    device: str, dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Mock(side_effect=ValueError("seen"))
    monkeypatch.setattr(activations, "load_model", double)
    monkeypatch.setattr(activations, "has_fast_bfloat16", lambda _: False)
    options = {"dtype": "bfloat16"}
    sae = load(tmp_path / "sae", model_from_pretrained_kwargs=options, model_class_name="x")
    with pytest.raises(ValueError, match="seen"):
        ActivationSource(Text(rows_of_tokens(), "x"), n_tokens=9, device=device).model_of(sae)
    assert double.call_args.kwargs["model_from_pretrained_kwargs"] == {"dtype": dtype}


def test_what_a_model_prints_while_it_is_loaded_is_not_among_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        activations, "load_model", lambda *_, **__: print("Loaded") or tiny_model()
    )
    source().activations(load(tmp_path / "sae"), "mine")
    assert capsys.readouterr().out == ""


SHORT: dict[str, tuple[Any, int]] = {
    "a sentence": (Dataset.from_dict({"text": ["three short words"]}), 4),  # and [SEP]
    "sentences": (Dataset.from_dict({"text": ["one two", "", "three"]}), 6),
    "rows of tokens": (Dataset.from_dict({"tokens": [[1, 2, 3], [4, 5, 6]]}), 3),
    "a token": (Dataset.from_dict({"input_ids": [[3]]}), 1),
}


@pytest.mark.parametrize("case", SHORT)
def test_a_text_that_is_shorter_than_a_row_is_read_as_it_is(case: str, tmp_path: Path) -> None:
    dataset, length = SHORT[case]
    told: list[str] = []
    sae = load(tmp_path / "sae", sequence_separator_token=5, exclude_special_tokens=False)
    found = source(dataset, tell=told.append).activations(sae, "mine")
    assert found.rows.shape[1] == length
    assert len(found.activations) == found.rows.numel()
    assert any(f"{length} tokens" in line for line in told)


def test_a_text_of_nothing_but_what_is_left_out_is_refused(tmp_path: Path) -> None:
    special = Dataset.from_dict({"tokens": [[0, 7] * (CONTEXT // 2)] * 3})
    with pytest.raises(
        UserError, match=r"^mine: `text` should have a token that the SAE was trained on"
    ):
        source(special).activations(load(tmp_path / "sae"), "mine")


@pytest.mark.parametrize("key", ["model_name", "hook_name"])
def test_no_model_is_loaded_for_an_sae_that_says_too_little(
    key: str, tmp_path: Path, loaded: list[str]
) -> None:
    """One of known features: there is no hook."""
    sae = load(tmp_path / "sae", **{key: None})
    with pytest.raises(UserError, match=rf"^mine: `metadata\.{key}`"):
        source().activations(sae, "mine")
    assert loaded == []


@pytest.mark.parametrize(
    ("key", "taken"), [("context_size", CONTEXT), ("prepend_bos", True)], ids=["length", "bos"]
)
def test_of_rows_that_an_sae_does_not_describe_sae_lenss_own_are_taken(
    key: str, taken: object, tmp_path: Path
) -> None:
    """As long as the model takes them at most; SAELens's release of Goodfire's has none."""
    told: list[str] = []
    sae, alike = (load(tmp_path / str(said), **{key: said}) for said in (None, taken))
    read = source(Dataset.from_dict(texts()[:]), tell=told.append)
    found = read.activations(sae, "mine")
    assert found.rows.shape[1] == CONTEXT
    expected = f"does not say on which rows it was trained. Taken: {key} = {taken}"
    assert any(expected in line for line in told)
    assert read.activations(alike, "alike") is found


@pytest.mark.parametrize("form", ["transcoder", "jumprelu_skip_transcoder", "temporal"])
def test_what_does_not_reconstruct_its_inputs_is_not_run_on_text(form: str) -> None:
    sae = Mock(cfg=Mock(architecture=lambda: form))
    with pytest.raises(UserError, match=f"A {form} does not"):
        source().model_of(sae)


NETWORK = OSError("We couldn't connect")  # as transformers raises it
NETWORK.__cause__ = LocalEntryNotFoundError("not in the cache")


@pytest.mark.parametrize(
    ("failing", "error", "said"),
    [
        # TransformerLens lists every model that it knows.
        ("load_model", ValueError(f"x not found. Known: {['gpt2'] * 1000}"), r"x not found\.$"),
        ("load_model", ValueError("x" * 5000), r"tiny at [\w.]+\. x+…$"),
        ("load_model", IndexError("index out of range in self"), r"context_size` should be at"),
        ("load_model", KeyError("rope_type"), r"tiny at [\w.]+\. 'rope_type'$"),
        ("load_model", NETWORK, r"^x: The model tiny is not on this machine.*Hub"),
    ],
)
def test_what_libraries_raise_is_told_in_a_sentence_that_names_the_network(
    failing: str, error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Mock(side_effect=error)
    monkeypatch.setattr(f"sae_lens_c2r.inspection.activations.{failing}", double)
    with pytest.raises(UserError, match=said) as caught:
        source().activations(load(tmp_path / "sae", model_class_name="HookedTransformer"), "x")
    assert len(str(caught.value)) < 500


def test_an_sae_without_a_class_of_a_model_that_transformer_lens_has_not_says_what_to_add(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Mock(side_effect=ValueError("tiny not found"))
    monkeypatch.setattr(activations, "load_model", double)
    with pytest.raises(UserError, match="AutoModelForCausalLM") as caught:
        source().activations(load(tmp_path / "sae"), "x")
    assert caught.value.field == "metadata.model_class_name"
    sae = load(tmp_path / "sae", model_name="gpt2")  # which it has
    with pytest.raises(UserError, match="no activations of width"):
        source().activations(sae, "x")


def test_another_model_has_not_the_revision_of_the_sae_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    double = Mock(return_value=tiny_model())
    monkeypatch.setattr(activations, "load_model", double)
    own = {"revision": "c0ffee"}
    sae = load(tmp_path / "sae", model_name="gpt2-small", model_from_pretrained_kwargs=own)
    for model, options in ((None, own), ("openai-community/gpt2", own), ("gpt2-medium", {})):
        source(model=model).model_of(sae)
        assert double.call_args.kwargs["model_from_pretrained_kwargs"] == options


def test_a_model_without_a_tokenizer_shows_tokens_by_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model()
    monkeypatch.setattr(model, "tokenizer", None)
    monkeypatch.setattr(activations, "load_model", lambda *_, **__: model)
    sae = load(tmp_path / "sae")
    text = source().activations(sae, "x")
    fires = sae.encode(text.activations).sum(dim=0).argmax().item()
    [latent] = latents_in_context(sae, text, [int(fires)])
    shown = latent.top_tokens[0]
    row = "".join(f" {token}" for token in text.rows.flatten().tolist())
    assert f"{shown.before}{shown.token}{shown.after}" in row


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


def test_documents_that_are_not_joined_are_read_at_the_length_that_keeps_most(
    tmp_path: Path,
) -> None:
    text = Dataset.from_dict({"text": ["one two three", *["one two"] * 9]})
    sae = load(tmp_path / "sae", disable_concat_sequences=True)
    told: list[str] = []
    assert len(source(text, tell=told.append).activations(sae, "x").rows) == 10
    assert told[0].endswith("Shorter documents are left out, as the SAE does not join them.")
    # SAELens puts a token before each, the tokenizer one after it: two words fill a row of 4.
    after_bos = load(tmp_path / "bos", disable_concat_sequences=True, prepend_bos=True)
    full = Dataset.from_dict({"text": [" ".join(["one"] * (CONTEXT - 2)), *["one"] * 99]})
    for dataset, shape in ((text, (10, 4)), (full, (1, CONTEXT))):
        assert source(dataset).activations(after_bos, "x").rows.shape == shape


@pytest.mark.parametrize("text", ["text.txt", OFFLINE_DATASET])
def test_any_model_reads_any_text_in_place_of_the_one_in_the_config(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(" ".join(texts()["text"]))
    sae = load(tmp_path / "sae", model_name="no-such-model")
    with pytest.raises(UserError, match="no-such-model is not a model"):
        source(text).activations(sae, "x")
    found = source(text, model="tiny", n_tokens=20).activations(sae, "x")
    assert (found.rows.shape[1], found.text, found.model) == (CONTEXT, text, "tiny")


def test_one_model_is_kept_at_a_time(
    tmp_path: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[Any] = []

    def load_another(_class: str, name: str, **_: Any) -> Any:
        assert not [each for each in models if each() is not None]
        loaded.append(name)
        model = Mock()
        models.append(ref(model))
        return model

    monkeypatch.setattr(activations, "load_model", load_another)
    reader = source()
    for name in ("one", "other", "other"):
        reader.model_of(load(tmp_path / name, model_name=name))
    assert loaded == ["one", "other"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("context_size", value) for value in ("32", 0, 32.5, True)),
        *(("model_name", 5), ("model_class_name", []), ("hook_name", {})),
        *(("exclude_special_tokens", "yes"), ("exclude_special_tokens", ["a"])),
        *(("seqpos_slice", "0:5"), ("prepend_bos", "no"), ("hook_head_index", "3")),
    ],
)
def test_metadata_of_a_wrong_type_are_named_with_what_was_found(
    key: str, value: Any, tmp_path: Path
) -> None:
    sae = load(tmp_path / "sae", **{key: value})
    with pytest.raises(UserError) as caught:
        source().activations(sae, "it")
    assert (caught.value.field, caught.value.of) == (f"metadata.{key}", "it")
    assert caught.value.found == repr(value)


def test_metadata_may_be_missing_or_null_or_of_others(
    tmp_path: Path, loaded: list[str]
) -> None:
    kept = {"seqpos_slice": [0, None], "exclude_special_tokens": [5], "context_size": 8}
    others = {"prepend_bos": False, "notes": ["of others"], "sequence_separator_token": "bos"}
    sae = load(tmp_path / "sae", hook_head_index=None, **kept, **others)
    assert len(source().activations(sae, "it").activations)
    assert loaded == ["tiny"]
