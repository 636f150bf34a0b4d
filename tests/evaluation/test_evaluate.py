"""Evaluations are run once, and SAEs that read alike share a model."""

import shutil
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from filelock import FileLock
from sae_lens import SAE
from sae_lens.load_model import HookedProxyLM
from torch.nn.functional import cross_entropy
from transformers import BertConfig, LlamaConfig, LlamaForCausalLM

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.evaluation.evaluate import evaluate
from sae_lens_c2r.evaluation.results import Task, read_report
from sae_lens_c2r.evaluation.sae_lens import OnText, _predicts_the_next_token, as_trained
from sae_lens_c2r.evaluation.settings import Options
from sae_lens_c2r.models import loading
from sae_lens_c2r.models.reading import Reading
from sae_lens_c2r.saes.record import Evaluation
from sae_lens_c2r.saes.sae_ref import find_saes
from tests.evaluation.planted import plant_sae, small_sae
from tests.hub.conftest import say
from tests.language_model import CONTEXT, D_MODEL, HOOK, rows_of_tokens, tiny_model

Evaluate = Callable[..., list[str]]


@pytest.fixture
def sae(tmp_path: Path) -> Path:
    return plant_sae(tmp_path / "sae", d_in=8)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Evaluation]:
    """What is asked of SAELens's evaluation, which does nothing but answer."""
    told: list[Evaluation] = []

    def answer(_: OnText, sae: SAE[Any], name: str, asked: Evaluation) -> dict[str, float]:  # noqa: ARG001
        told.append(asked)
        if "fails" in name:
            raise RuntimeError("it failed.")
        if "interrupted" in name:
            raise KeyboardInterrupt
        return {"l0": 3.0}

    monkeypatch.setattr(OnText, "measure", answer)
    return told


@pytest.fixture
def run(out: Path) -> Evaluate:
    def run(*paths: Path, **options: Any) -> list[str]:
        failed: list[UserError] = []
        sources = find_saes(list(map(str, paths)), on_error=failed.append)
        evaluate(sources, Options(out, **options), on_error=failed.append)
        return [str(error) for error in failed]

    return run


def names(out: Path) -> list[str]:
    return [str(sae.name) for sae in read_report(out / "evaluation.json").saes]


def test_only_what_has_changed_is_run_again(
    tmp_path: Path, sae: Path, out: Path, run: Evaluate, requests: list[Evaluation]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one text")
    changes: list[Callable[[], object]] = [
        lambda: say(sae, hook_name="blocks.1.hook_resid_post"),
        lambda: say(sae, context_size=16),
        lambda: say(sae, exclude_special_tokens=[1]),
        lambda: say(sae, {"settings": {"source": {}, "runner": {"autocast_lm": True}}}),
        lambda: plant_sae(sae, d_in=8, seed=3),
        lambda: text.write_text("another text"),
    ]
    assert not run(sae, text=str(text))
    for number, change in enumerate(changes, start=1):
        assert not run(sae, text=str(text))
        assert len(requests) == number
        change()
        assert not run(sae, text=str(text))
        assert len(requests) == number + 1
    settings = {"sae_lens.batch_size_prompts": 3}
    assert not run(sae, text=str(text), overrides=settings)
    assert requests[-1].settings["batch_size_prompts"] == 3
    assert not run(sae, text=str(text), overrides=settings, part={"split": "train[:1]"})
    assert requests[-1].settings["split"] == "train[:1]"
    # A copy is the same SAE, by another name; the others stay.
    before = read_report(out / "evaluation.json").saes
    shutil.copytree(sae, tmp_path / "copy")
    n_requests = len(requests)
    part = {"split": "train[:1]"}
    assert not run(tmp_path / "copy", text=str(text), overrides=settings, part=part)
    assert len(requests) == n_requests
    after = read_report(out / "evaluation.json").saes
    assert names(out).count(str(tmp_path / "copy")) == 1
    kept = [{each.config_sha256: each.evaluations for each in saes} for saes in (before, after)]
    assert kept[0] == kept[1]


def test_what_decides_nothing_leaves_a_measurement_as_it_is(
    sae: Path, run: Evaluate, requests: list[Evaluation]
) -> None:
    assert not run(sae)
    say(sae, neuronpedia_id="gpt2/5-mine/1", l0=3.5)
    say(sae, sae_lens_version="7.0.0", sae_lens_training_version="5.0.0")
    assert not run(sae)
    assert len(requests) == 1


def test_files_and_folders_are_named_by_their_whole_paths(
    sae: Path, run: Evaluate, requests: list[Evaluation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is no model is none."""
    monkeypatch.chdir(sae.parent)
    for path in ("mine/config.json", "text.txt", "gpt2/notes.txt"):
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text("{}")
    assert not run(sae, model="mine", text="text.txt")
    places = [str(Path(name).resolve()) for name in ("mine", "text.txt")]
    assert [requests[-1].model, requests[-1].text] == places
    assert not run(sae, model="gpt2", text="python-documentation")
    assert [requests[-1].model, requests[-1].text] == ["gpt2", "python-documentation"]


def test_what_is_done_is_kept_when_another_sae_fails_or_the_command_is_interrupted(
    tmp_path: Path, out: Path, run: Evaluate, requests: list[Evaluation]
) -> None:
    folders = ("a", "b-fails", "c", "d-interrupted", "e")
    saes = [plant_sae(tmp_path / name, d_in=8, seed=i) for i, name in enumerate(folders)]
    with pytest.raises(KeyboardInterrupt):
        run(*saes)
    done = [
        Path(str(sae.name)).name
        for sae in read_report(out / "evaluation.json").saes
        if "sae_lens" in sae.evaluations
    ]
    assert done == ["a", "c"]
    n_requests = len(requests)
    [error] = run(saes[0], saes[1], saes[2], saes[4])
    assert error == f"sae_lens of {saes[1]}: RuntimeError: it failed."
    assert len(requests) == n_requests + 2  # of the one that fails, and of the last


def test_saes_that_share_all_else_are_in_one_process_of_sae_bench(
    tmp_path: Path, run: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sae_bench")
    groups: list[list[str]] = []

    def note(tasks: list[Task], log: Path, *, give: Callable[..., None]) -> None:
        groups.append([Path(str(task.sae.name)).name for task in tasks])
        assert log.name == f"{tasks[0].name}.log"
        for task in tasks:
            give(task, {"a": 1.0} if "c" not in groups[-1] else {"a": float("nan")})

    monkeypatch.setattr("sae_lens_c2r.evaluation.evaluate.run_sae_bench", note)
    changes = {"a": {}, "b": {"l0": 3.0}, "text": {"dataset_path": "somebody/else"}}
    changes |= {"hook": {"hook_name": "blocks.1.x"}, "context": {"context_size": 16}}
    changes |= {"options": {"model_from_pretrained_kwargs": {"revision": "v1"}}}
    saes = [plant_sae(tmp_path / name, d_in=8, seed=i) for i, name in enumerate(changes)]
    for sae, change in zip(saes, changes.values(), strict=True):
        say(sae, **change)
    options = {"sae_lens": False, "sae_bench": ["core"]}
    assert not run(*saes, **options)
    assert groups == [["a", "b", "text"], ["hook"], ["context"], ["options"]]
    assert not run(*saes, **options)
    assert len(groups) == 4
    [error] = run(plant_sae(tmp_path / "c", d_in=8, seed=9), **options)
    assert error == f"core of {tmp_path / 'c'}: it gave no finite number."


@pytest.mark.usefixtures("requests")
def test_a_folder_is_of_one_process_and_of_this_command(
    sae: Path, out: Path, run: Evaluate
) -> None:
    out.mkdir()
    with FileLock(out / ".lock"), pytest.raises(UserError, match="in use"):
        run(sae)
    with pytest.raises(UserError, match="There should be an SAE"):
        run()
    (out / ".working-old").mkdir()
    assert not run(sae)
    assert not list(out.glob(".working-*"))
    (out / "evaluation.json").write_text("{}")  # of another program
    with pytest.raises(UserError, match=r"evaluation\.json"):
        run(sae)
    assert (out / "evaluation.json").read_text() == "{}"


def test_activations_are_spliced_where_the_sae_was_trained() -> None:
    """Not at other positions, at special tokens, or where norms were left out."""

    def run(tokens: torch.Tensor, fwd_hooks: Any) -> torch.Tensor:
        assert torch.is_autocast_enabled("cpu")  # as of the model, and not of the SAE
        acts = torch.ones(*tokens.shape, 3)
        acts[0, 3] = 100
        return fwd_hooks[0][1](acts, None)

    model: Any = SimpleNamespace(
        run_with_hooks=run, tokenizer=None, unembed=torch.nn.Identity()
    )
    reading = {"seqpos_slice": (1, None, 2), "exclude_special_tokens": (7,)}
    reading |= {"max_activation_norm_multiple": 10}
    tokens = torch.ones(2, 5, dtype=torch.long)
    tokens[1, 1] = 7

    def reconstruct(acts: torch.Tensor, **_: Any) -> torch.Tensor:
        assert not torch.is_autocast_enabled("cpu")
        return -acts

    replaced = [("hook", reconstruct)]
    with torch.autocast("cpu"), as_trained(model, Reading.of(reading)):
        spliced = model.run_with_hooks(tokens, fwd_hooks=replaced)
    assert model.run_with_hooks is run
    assert (spliced[..., 0] < 0).tolist() == [
        [False, True, False, False, False],
        [False, False, False, True, False],
    ]


@pytest.mark.parametrize("of_transformers", [True, False])
def test_losses_of_a_model_in_bfloat16_are_not_rounded(of_transformers: bool) -> None:
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    config = LlamaConfig(vocab_size=50, num_hidden_layers=1, **sizes)
    model: Any = deepcopy(tiny_model())
    if of_transformers:
        model = HookedProxyLM(LlamaForCausalLM(config), model.tokenizer)
    model.to(torch.bfloat16)
    tokens = torch.arange(8)[None]
    _, rounded = model(tokens, return_type="both")
    with as_trained(model, Reading()):
        logits, loss = model(tokens, return_type="both")
    assert (rounded.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
    assert loss.item() == pytest.approx(cross_entropy(logits[0, :-1], tokens[0, 1:]).item())
    assert loss.item() == pytest.approx(rounded.item(), rel=0.01)


@pytest.mark.parametrize(
    ("config", "predicts"),
    [(BertConfig(), False), (BertConfig(is_decoder=True), True), (LlamaConfig(), True)],
)
def test_only_models_that_predict_the_next_token_have_a_loss(
    config: Any, predicts: bool
) -> None:
    model = SimpleNamespace(model=SimpleNamespace(config=config))
    assert _predicts_the_next_token(model) == predicts
    assert _predicts_the_next_token(tiny_model())


def test_numbers_are_of_the_positions_that_the_sae_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever SAEs were measured before it, for which the model is loaded once."""
    loaded: list[str] = []

    def load(_: str, name: str, **__: Any) -> Any:
        loaded.append(name)
        return deepcopy(tiny_model())

    monkeypatch.setattr(loading, "load_model", load)
    rows = rows_of_tokens(8)
    rows.to_json(tmp_path / "text.jsonl")
    settings = Options(Path()).settings("sae_lens", "")
    settings |= {"n_eval_sparsity_variance_batches": 2, "batch_size_prompts": 4}
    text = str(tmp_path / "text.jsonl")
    asked = Evaluation(settings=settings, text=text, model="tiny", device="cpu", metrics={})

    def sae_of(first: int) -> SAE[Any]:
        sae = small_sae(d_in=D_MODEL, hook=HOOK)
        read = {"context_size": CONTEXT, "seqpos_slice": (first, None), "prepend_bos": False}
        vars(sae.cfg.metadata).update(read, exclude_special_tokens=False)
        return sae

    sae = sae_of(3)
    found = OnText(print).measure(sae, "it", asked)
    _, cache = tiny_model().run_with_cache(torch.tensor(rows["tokens"]), prepend_bos=False)
    inputs = cache[HOOK][:, 3:].flatten(end_dim=1)
    acts = sae.encode(inputs)
    errors, deviations = inputs - sae.decode(acts), inputs - inputs.mean(dim=0)
    explained = 1 - (errors.square().sum() / deviations.square().sum()).item()
    assert found["explained_variance"] == pytest.approx(explained, rel=1e-3)
    assert found["l0"] == pytest.approx((acts != 0).sum().item() / len(inputs))
    assert found["n_tokens"] == len(inputs)
    assert found["n_tokens_left_out"] == 8 * 3
    # SAELens's other numbers are of all positions.
    groups = ("model_performance_preservation", "model_behavior_preservation")
    assert not [
        key for key, value in found.items() if isinstance(value, dict) and key not in groups
    ]
    assert loaded == ["tiny"]
    on_text = OnText(print)
    others = [on_text.measure(sae_of(first), "other", asked) for first in (0, 3, 3)]
    assert loaded == ["tiny"] * 2
    assert others[0] != found
    assert others[1:] == [found] * 2


def test_a_folder_for_sae_bench_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process starts elsewhere, where the name would be one of the Hub's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wikitext").mkdir()
    asked = {"core.dataset": "wikitext"}
    options = Options(tmp_path, ["core"], sae_lens=False, overrides=asked)
    assert options.overrides["core.dataset"] == str(tmp_path / "wikitext")
