"""Evaluations are run once, in folders of their own, without SAEBench here."""

import json
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from filelock import FileLock
from pydantic import TypeAdapter
from sae_lens import SAE, evals
from sae_lens.load_model import HookedProxyLM
from torch.nn.functional import cross_entropy
from transformers import BertConfig, LlamaConfig, LlamaForCausalLM

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.files import write_json
from sae_lens_c2r.cli._shared import LineConsole
from sae_lens_c2r.evaluation import tasks, worker
from sae_lens_c2r.evaluation.evaluate import evaluate
from sae_lens_c2r.evaluation.on_text import (
    _compute_loss_in_float32,
    _losses_of_rows,
    _predicts_the_next_token,
    _splice_where_trained,
    error_of_loss_recovered,
    on_text,
)
from sae_lens_c2r.evaluation.report import read_report
from sae_lens_c2r.evaluation.settings import Options, settings_of
from sae_lens_c2r.evaluation.tasks import Task
from sae_lens_c2r.models import loading
from sae_lens_c2r.models.reading import Reading
from sae_lens_c2r.saes.sae_ref import find_saes
from tests.command import run_command
from tests.evaluation.planted import plant_sae, small_sae
from tests.hub.conftest import say
from tests.language_model import CONTEXT, D_MODEL, HOOK, rows_of_tokens, tiny_model

Evaluate = Callable[..., list[str]]
Say = Callable[[str], None]


@pytest.fixture
def sae(tmp_path: Path) -> Path:
    return plant_sae(tmp_path / "sae", d_in=8)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """The tasks of workers, who do nothing but answer."""
    told: list[Task] = []

    def answer(working: Path, *_: object, **__: object) -> Iterator[tuple[Path, float]]:
        assert not list((working / "inside").iterdir())
        (working / "inside" / "cache").write_text("of the evaluation")
        for task in TypeAdapter(list[Task]).validate_json(
            (working / "tasks.json").read_bytes()
        ):
            told.append(task)
            if "fails" in task.sae.name:
                raise UserError("it failed.")
            result = {"eval_type_id": "sae_lens", "eval_result_metrics": {"l0": 3.0}}
            path = working / f"{task.key}.json"
            path.write_text(json.dumps(result))
            yield path, 1.0

    monkeypatch.setattr("sae_lens_c2r.evaluation.evaluate.run_worker", answer)
    return told


@pytest.fixture
def run(out: Path, requests: list[Task]) -> Evaluate:  # noqa: ARG001
    def run(*paths: Path, tell: Say = print, **options: object) -> list[str]:
        failed: list[UserError] = []
        sources = find_saes(list(map(str, paths)), on_error=failed.append)
        evaluate(sources, Options(out, **options), on_error=failed.append, tell=tell)
        return [str(error) for error in failed]

    return run


def names(out: Path) -> list[str]:
    return [sae.name for sae in read_report(out / "evaluation.json").saes]


def test_only_what_has_changed_is_run_again(
    tmp_path: Path, sae: Path, out: Path, run: Evaluate, requests: list[Task]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one text")
    changes: list[Callable[[], object]] = [
        lambda: say(sae, hook_name="blocks.1.hook_resid_post"),
        lambda: say(sae, context_size=16),
        lambda: say(sae, exclude_special_tokens=[1]),
        lambda: plant_sae(sae, d_in=8, seed=3),
        lambda: text.write_text("another text"),
    ]
    assert not run(sae, text=str(text))
    assert len(requests) == 1
    for number, change in enumerate(changes, start=2):
        assert not run(sae, text=str(text))
        change()
        assert not run(sae, text=str(text))
        assert len(requests) == number
    assert not run(sae, text=str(text), overrides={"sae_lens.batch_size_prompts": 3})
    assert requests[-1].asked.settings["batch_size_prompts"] == 3
    shutil.copytree(sae, tmp_path / "copy")
    assert not run(sae, sae.parent / "." / "sae", tmp_path / "copy", text=str(text))
    n_requests = len(requests)
    (out / "evaluation.json").unlink()  # by which an SAE is dropped whose folder is deleted
    (tmp_path / "link").symlink_to(sae)  # which is the same SAE, by another name
    assert not run(tmp_path / "link", text=str(text))
    assert len(requests) == n_requests
    assert requests[-1].source.name == str(tmp_path / "copy")
    assert len(list(out.glob("*/sae_lens-*"))) == len(names(out))
    # The first was planned for other weights.
    (tmp_path / "tasks.json").write_text(f"[{requests[0].model_dump_json()}]")
    with pytest.raises(UserError, match="has changed since the evaluation was planned"):
        worker._run(tmp_path)


def test_what_lies_beside_is_found_by_the_evaluation_and_noticed_when_it_changes(
    sae: Path, run: Evaluate, requests: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sae.parent)
    for path in ("models/mine/config.json", "texts/text.txt", "other/text.txt"):
        Path(path).parent.mkdir(parents=True)
        Path(path).write_text("one")
    say(sae, model_name="models/mine", dataset_path="texts/text.txt")
    assert not run(sae)
    asked = requests[-1].asked
    assert (asked.model, asked.text) == (str(Path("models/mine").resolve()), asked.text)
    assert asked.text == str(Path("texts/text.txt").resolve())
    assert asked.inputs.keys() == {asked.model, asked.text}
    say(sae, dataset_path="other/text.txt", dataset_split="test")
    for number, content in enumerate(("one", "two"), start=2):
        Path("other/text.txt").write_text(content)
        for _ in range(2):
            assert not run(sae)
            assert len(requests) == number
    assert requests[-1].asked.settings["split"] == "test"
    assert not run(sae, part={"split": "validation"})
    assert requests[-1].asked.settings["split"] == "validation"


def test_a_folder_that_is_none_is_no_model_and_no_text(
    sae: Path, run: Evaluate, requests: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one that training says it did not read."""
    monkeypatch.chdir(sae.parent)
    for name in ("gpt2", "org/text"):
        Path(name).mkdir(parents=True)
    say(sae, dataset_path="org/text")
    assert not run(sae, model="gpt2")
    assert (requests[-1].asked.model, requests[-1].asked.text) == ("gpt2", None)
    Path("org/text/train.txt").write_text("words")
    say(sae, {"from_disk": []})
    assert not run(sae, model="gpt2")
    assert requests[-1].asked.text is None
    Path("gpt2/config.json").write_text("{}")
    say(sae, {"from_disk": ["org/text"]})
    assert not run(sae, model="gpt2")
    places = [str(Path(name).resolve()) for name in ("gpt2", "org/text")]
    assert [requests[-1].asked.model, requests[-1].asked.text] == places


def test_what_decides_nothing_leaves_a_measurement_as_it_is(
    sae: Path, run: Evaluate, requests: list[Task]
) -> None:
    assert not run(sae)
    say(sae, neuronpedia_id="gpt2/5-mine/1", l0=3.5)
    say(sae, sae_lens_version="7.0.0", sae_lens_training_version="5.0.0")
    assert not run(sae)
    assert len(requests) == 1


def test_what_was_measured_by_the_hash_of_before_is_not_measured_again(
    sae: Path, out: Path, run: Evaluate, requests: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        hashes = tasks.sae_hashes
        patch.setattr(
            tasks, "sae_hashes", lambda sae: (hashes(sae)[0], tasks.earlier_config_hash(sae))
        )
        assert not run(sae)
    [before] = read_report(out / "evaluation.json").saes
    assert not run(sae)
    assert len(requests) == 1
    assert not run(sae, overrides={"sae_lens.batch_size_prompts": 3})
    [after] = read_report(out / "evaluation.json").saes
    assert after.evaluations.keys() == before.evaluations.keys()


def test_saes_of_similar_names_are_told_apart(tmp_path: Path, out: Path, run: Evaluate) -> None:
    similar = ("a b", "a_b", "ä/" + "x" * 80, "ö/" + "x" * 80, "[/k=3] c|d")
    saes = [plant_sae(tmp_path / name, d_in=8) for name in similar]
    assert not run(*saes, jobs=2)
    assert sorted(names(out)) == sorted(map(str, saes))


def test_saes_that_share_all_else_are_evaluated_together(tmp_path: Path, run: Evaluate) -> None:
    """If one fails, it is named, and the others are evaluated without it."""
    changes = {"a": {}, "b-fails": {"l0": 3.0}, "c": {}, "hook": {"hook_name": "blocks.1.x"}}
    changes |= {"context": {"context_size": 16}, "text": {"dataset_path": "somebody/else"}}
    changes |= {"options": {"model_from_pretrained_kwargs": {"revision": "v1"}}}
    saes = [plant_sae(tmp_path / name, d_in=8, seed=i) for i, name in enumerate(changes)]
    for sae, change in zip(saes, changes.values(), strict=True):
        say(sae, **change)
    lines: list[str] = []
    [error] = run(*saes, tell=lines.append)
    assert error.startswith(f"sae_lens of {saes[1]}: it failed. Log: {tmp_path}")
    starts = [line.partition(". Log: ")[0] for line in lines if ": started, " in line]
    assert starts == [f"sae_lens: started, {n}" for n in ("3 SAEs", *["1 SAE"] * 4)]
    assert [line for line in lines if " of 3 SAEs, " in line] == [
        f"sae_lens: 1 of 3 SAEs, {saes[0]}.",
        f"sae_lens: 2 of 3 SAEs, {saes[1]}: failed.",
        f"sae_lens: 3 of 3 SAEs, {saes[2]}.",
    ]
    assert len(run(*saes, tell=lines.append)) == 1  # which alone is run again
    assert lines[-2].startswith("sae_lens: started, 1 SAE. Log: ")
    assert not list(tmp_path.rglob(".working-*"))


@pytest.mark.parametrize(("quiet", "terminal"), [(False, True), (True, True), (False, False)])
def test_a_terminal_shows_what_is_done(
    quiet: bool,
    terminal: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    console = LineConsole(quiet=quiet)
    # Nested bars move the cursor; a line may be longer than the terminal.
    with console.clock(lambda: f"\x1b[A5 of 8 {'and more ' * 99}"):
        console.say("a line")
    errors = capsys.readouterr().err
    assert ("5 of 8" in errors) == (terminal and not quiet)
    assert "\x1b[A5" not in errors
    assert ("a line" in errors) == (not quiet)


def test_a_cpu_is_given_less_to_measure_unless_asked() -> None:
    of_cpu, of_gpu, asked = (
        settings_of("sae_lens", changes, model=None, device=device)
        for device, changes in (
            ("cpu", {}),
            ("cuda", {}),
            ("cpu", {"sae_lens.n_eval_reconstruction_batches": 99}),
        )
    )
    rows = [
        each["batch_size_prompts"] * each["n_eval_reconstruction_batches"]
        for each in (of_cpu, of_gpu, asked)
    ]
    assert rows == [32, 160, 4 * 99]


def test_the_error_of_loss_recovered_is_that_of_its_mean_over_rows() -> None:
    torch.manual_seed(0)
    spliced = 3 + 0.1 * torch.rand(50, dtype=torch.float64)
    losses = torch.stack([torch.full_like(spliced, 5), spliced, torch.ones_like(spliced)], 1)
    scores = (5 - spliced) / (5 - 1)
    expected = scores.std().item() / 50**0.5
    assert error_of_loss_recovered(losses) == pytest.approx(expected)
    # What rows have in common makes none, and all rows alike have none.
    assert error_of_loss_recovered(losses[:1].expand(9, -1)) == pytest.approx(0, abs=1e-12)


def measure_on(text: Path, sae: SAE[Any], **changes: Any) -> dict[str, Any]:
    """Measure an SAE on a text as SAELens's evaluation of it does, in this process."""
    settings = settings_of("sae_lens", changes, model=None, device="cpu")
    asked = SimpleNamespace(settings=settings, text=str(text), model=None)
    task: Any = SimpleNamespace(asked=asked, device="cpu", sae=SimpleNamespace(name="it"))
    return on_text(task, sae)(task, sae)


def test_the_losses_of_rows_are_of_the_tokens_that_sae_lens_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens = torch.tensor([[0, 5, 6, 7], [0, 5, 0, 7]])
    per_token = torch.arange(6.0).view(2, 3)
    found = {f"ce_loss_{name}": per_token for name in ("with_ablation", "with_sae")}
    found["ce_loss_without_sae"] = -per_token
    monkeypatch.setattr(evals, "get_recons_loss", lambda *_, **__: found)
    for ignored, sums in (([0], [1 + 2, 4]), (None, [0 + 1 + 2, 3 + 4 + 5])):
        options = {"compute_ce_loss": True, "ignore_tokens": ignored}
        with _losses_of_rows() as rows:
            for _ in range(2):  # a text that is read again has no more rows
                evals.get_recons_loss(None, None, None, tokens, **options)  # type: ignore[arg-type]
        assert [each.tolist() for each in rows.values()] == [[of, of, -of] for of in sums]


def test_a_file_with_the_name_of_a_text_of_ours_is_not_read_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.txt", "python-documentation"):
        Path(name).write_text("words")
    assert Options(tmp_path, text="mine.txt").text == str(tmp_path / "mine.txt")
    assert Options(tmp_path, text="python-documentation").text == "python-documentation"


@pytest.mark.parametrize("given", [{"text": "mine.txt"}, {"part": {"split": "test"}}])
def test_a_text_that_no_evaluation_would_read_is_refused(
    given: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"should be left out without .* core\.dataset="):
        Options(tmp_path, sae_lens=False, **given)


def test_each_sae_that_cannot_be_is_one_line(tmp_path: Path, out: Path, run: Evaluate) -> None:
    reasons = {
        "hook": "`metadata.hook_name`",
        "model": "`model` should be given, or else `metadata.model_name`",
        "broken": "JSON",
        "list": "",
        "nan": "finite",
        "whole": None,
    }
    saes = {name: plant_sae(tmp_path / name, d_in=8) for name in reasons}
    say(saes["hook"], hook_name=None)
    say(saes["model"], model_name=None)
    (saes["broken"] / "cfg.json").write_text("{")
    (saes["list"] / "cfg.json").write_text("[]")
    weights = saes["nan"] / "sae_weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\xc0\x7f")
    nowhere, *failed = run(tmp_path / "nowhere", *saes.values())
    assert str(tmp_path / "nowhere") in nowhere
    for (name, reason), line in zip(list(reasons.items())[:-1], failed, strict=True):
        assert str(saes[name]) in line
        assert reason in line
        assert "\n" not in line
    measured = [str(saes[name]) for name in ("hook", "model", "whole")]
    assert names(out) == measured
    # Of nothing that was measured there is no table.
    elsewhere = ("--out", tmp_path / "elsewhere", "--device", "cpu")
    ran = run_command("evaluate", saes["broken"], *elsewhere)
    assert (ran.returncode, ran.stdout) == (1, "")


def test_a_folder_is_of_one_process_and_what_is_left_or_foreign_in_it_is_no_harm(
    tmp_path: Path,
    sae: Path,
    out: Path,
    run: Evaluate,
    requests: list[Task],
) -> None:
    out.mkdir()
    with FileLock(out / ".lock"), pytest.raises(UserError, match="in use"):
        run(sae)
    with pytest.raises(UserError, match="There should be an SAE"):
        run()
    assert not run(sae)
    (folder,) = out.glob("*/sae_lens-*")
    (out / ".working-old").mkdir()
    (folder / "about.json").write_text("cut")
    (out / "a" / "b").mkdir(parents=True)
    (out / "a" / "b" / "about.json").write_text("nonsense")
    assert not run(sae)
    assert len(requests) == 2
    assert not list(tmp_path.rglob(".working-*"))
    assert names(out) == [str(sae)]


@pytest.mark.parametrize("name", ["evaluation.json", "evaluation.md"])
def test_a_file_of_another_program_is_not_replaced(
    sae: Path, out: Path, run: Evaluate, requests: list[Task], name: str
) -> None:
    out.mkdir()
    (out / name).write_text("{}")
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        run(sae)
    assert [path.name for path in out.iterdir() if path.name != ".lock"] == [name]
    assert (out / name).read_text() == "{}"
    assert requests == []


def test_what_cannot_be_written_replaces_nothing(
    sae: Path, out: Path, run: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not run(sae)
    before = (out / "evaluation.json").read_text()

    def fail(path: Path, content: object) -> None:
        if path.name == "about.json":
            raise OSError("The disk is full.")
        write_json(path, content)

    monkeypatch.setattr("sae_lens_c2r.evaluation.evaluate.write_json", fail)
    [line] = run(sae, overrides={"sae_lens.batch_size_prompts": 3})
    assert "OSError: The disk is full." in line
    assert (out / "evaluation.json").read_text() == before


def test_activations_are_spliced_where_the_sae_was_trained() -> None:
    """Not at other positions, at special tokens, or where norms were left out."""

    def run(tokens: torch.Tensor, fwd_hooks: Any) -> torch.Tensor:
        assert torch.is_autocast_enabled("cpu")
        acts = torch.ones(*tokens.shape, 3)
        acts[0, 3] = 100
        return fwd_hooks[0][1](acts, None)

    model: Any = SimpleNamespace(run_with_hooks=run, tokenizer=None)
    reading = {"seqpos_slice": (1, None, 2), "exclude_special_tokens": (7,)}
    reading |= {"max_activation_norm_multiple": 10, "autocast_lm": True}
    _splice_where_trained(model, Reading.of(reading))
    tokens = torch.ones(2, 5, dtype=torch.long)
    tokens[1, 1] = 7
    replaced = [("hook", lambda acts, **_: -acts)]
    spliced = model.run_with_hooks(tokens, fwd_hooks=replaced)
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
    _compute_loss_in_float32(model)
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


def test_fidelity_and_firing_are_of_the_positions_that_the_sae_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "load_model", lambda *_, **__: deepcopy(tiny_model()))
    rows = rows_of_tokens(8)
    rows.to_json(tmp_path / "text.jsonl")
    sae = small_sae(d_in=D_MODEL, hook=HOOK)
    read = {"context_size": CONTEXT, "seqpos_slice": (3, None), "prepend_bos": False}
    vars(sae.cfg.metadata).update(read, exclude_special_tokens=False)
    changes = {"sae_lens.n_eval_sparsity_variance_batches": 2, "sae_lens.batch_size_prompts": 4}
    found = measure_on(tmp_path / "text.jsonl", sae, **changes)
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
