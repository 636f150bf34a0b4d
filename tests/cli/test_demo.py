"""The demo, small, as its user starts it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from sae_lens import SAE, SAETrainer

from sae_lens_c2r.models.offline import SMOLLM2
from sae_lens_c2r.releases import files
from sae_lens_c2r.releases.files import find_release, read_release
from tests.command import run_command

DEMO = "smollm2-demo"
SAES = ("batchtopk", "batchtopk_c2r")
SMALL: dict[str, Any] = {
    "language_model": {"training_tokens": 4096, "split": "train[:20]"},
    "runner": {"lr_decay_steps": 1, "n_batches_in_buffer": 16, "store_batch_size_prompts": 8},
    "sae": {"d_sae": 128, "k": 8},
}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's release, of a few steps; little is held out."""
    path = tmp_path / "registry" / f"{DEMO}.yaml"
    path.parent.mkdir()
    document = yaml.safe_load(find_release(DEMO).read_text())
    for part, values in SMALL.items():
        document[part] |= values
    path.write_text(yaml.safe_dump(document))
    monkeypatch.setattr(files, "REGISTRY", path.parent)
    monkeypatch.setattr("sae_lens_c2r.cli.demo._HELD_OUT", "train[-50:]")


@pytest.mark.usefixtures("small")
def test_it_trains_both_compares_them_on_other_text_and_goes_on_after_an_interruption(
    tmp_path: Path,
) -> None:
    out = tmp_path / "demo"
    with pytest.MonkeyPatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(SAETrainer, "step", interrupted)
        assert run_command("demo", "--out", out, "--device", "cpu").returncode == 130
    ran = run_command("demo", "--out", out, "--device", "cpu")
    assert ran.returncode == 0, ran.stderr
    assert {path.name for path in out.iterdir()} == {*SAES, "report.html"}
    assert "python-documentation (split train[-50:])" in ran.stdout
    assert "C2R should bring composition near" in ran.stdout
    for name in SAES:
        assert str(out / name) in ran.stdout
        assert SAE.load_from_disk(out / name).cfg.metadata.model_name == SMOLLM2.hub_id
    written = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    told = run_command("demo", "--out", out)
    assert told.returncode == 2
    assert "--overwrite" in told.stderr
    assert run_command("demo", "--out", out, "--device", "cpu", "--overwrite").returncode == 0
    changed = {path.name for path in written if path.stat().st_mtime_ns != written[path]}
    assert changed == {"report.html"}


def test_both_saes_are_alike_but_for_the_penalty_and_read_as_the_release_does() -> None:
    demo, known = (read_release(find_release(n)) for n in (DEMO, "smollm2-135m-layer-9"))
    first, second = (spec.fields for spec in demo.saes())
    assert {key for key in second if first.get(key) != second[key]} == {"architecture"}
    for name in (
        *("model_class_name", "prepend_bos", "sequence_separator_token"),
        *("exclude_special_tokens", "max_activation_norm_multiple"),
    ):
        assert demo.runner[name] == known.runner[name]
