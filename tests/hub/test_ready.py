"""Releases that are ready: what is committed of their SAEs, and the commands that made it."""

import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import SAE

from sae_lens_c2r.evaluation.results import REPORT_FILE, read_report
from sae_lens_c2r.hub.repo_record import RepoRecord
from sae_lens_c2r.releases.files import find_release, read_release, shipped_releases
from sae_lens_c2r.releases.model import FACTS, Release
from sae_lens_c2r.saes.encoding import encode_in_saelens_alone, probe_inputs
from sae_lens_c2r.saes.record import RECORD, SAERecord, read_record
from tests.docs.blocks import blocks_of
from tests.docs.commands import FEWER_ROWS, Shell
from tests.hub.server import TOKEN, Account, LoopbackHub
from tests.hub.test_card import CARDS

READY = "smollm2-135m-layer-9"
# The SAEs in the repository: of the others it has the digests.
COMMITTED = {"batchtopk_k32", *(f"batchtopk_c2r_k32_lambda_{at}" for at in (2, 5))}
# What enwik8.jsonl was called when they were trained, as a text of the package.
AS_TRAINED = {"language_model.dataset": "enwik8"}
DIGESTS = "SHA256SUMS"
FILES = {"cfg.json", "sae_weights.safetensors", RECORD}
SHORTER = {  # 4 steps
    "language_model.dataset": "python-documentation",
    "language_model.training_tokens": 2048,
    "runner.lr_decay_steps": 0,
    "runner.n_batches_in_buffer": 8,
    "runner.store_batch_size_prompts": 4,
    "runner.n_batches_for_norm_estimate": 2,
}
TRAINED = [f"layer_9/width_4k/batchtopk_c2r_k32_lambda_{at}" for at in (2, 5)]


def digests_of(folder: Path) -> dict[str, str]:
    """What `sha256sum` wrote: the SHA-256 of each file of the SAEs' folders."""
    lines = (folder / DIGESTS).read_text().splitlines()
    return {path: digest for digest, path in (line.split("  ") for line in lines)}


def check_ready(folder: Path, release: Release) -> None:
    """Assert that a card, the digests, the evaluation and the records are of a release."""
    facts, digests = RepoRecord.read((folder / FACTS).read_bytes()), digests_of(folder)
    said = (facts.repo_id, facts.license, facts.description)
    assert said == (release.repo_id, release.license, release.description)
    specs = {spec.sae_id: spec for spec in release.saes()}
    assert facts.saes.keys() == specs.keys()
    assert digests.keys() == {f"{sae_id}/{name}" for sae_id in specs for name in FILES}
    report = read_report(folder / REPORT_FILE)
    evaluated = {str(sae.name).partition(f"{release.name}/")[2]: sae for sae in report.saes}
    assert evaluated.keys() == specs.keys()
    for sae_id, sae in facts.saes.items():
        assert sae.file_sha256 == digests[f"{sae_id}/sae_weights.safetensors"]
        assert sae.trained_as == specs[sae_id].fields["architecture"]
        if Path(sae_id).name in COMMITTED:
            check_training(folder / sae_id, sae, release, sae_id)
        measured = evaluated[sae_id].evaluations
        for name, evaluation in measured.items():
            for key, value in sae.evaluations[name].model_dump(exclude_unset=True).items():
                assert getattr(evaluation, key) == value
    for path in (path for path in folder.rglob("*.json")):
        assert not re.search(r'"(/|\w:\\)', path.read_text()), "a place on somebody's machine"


def check_training(folder: Path, of_card: SAERecord, release: Release, sae_id: str) -> None:
    """Assert that an SAE was trained as a release says, which may have changed since."""
    record = read_record(folder)
    assert record.sae_id == sae_id
    settings, [spec] = record.settings, [s for s in release.saes() if s.sae_id == sae_id]
    # A field that the record lacks has its default.
    source = release.language_model
    assert type(source).model_validate(settings["source"]) == source
    assert release.runner.items() <= settings["runner"].items()
    assert {**spec.fields, "seed": 0}.items() <= settings["saes"][sae_id].items()
    batch_size = release.runner["train_batch_size_tokens"]
    assert record.samples == -(-source.training_tokens // batch_size) * batch_size
    assert record.steps == record.samples // batch_size
    for name in ("samples", "steps", "seconds", "device", "versions"):
        assert getattr(of_card, name) == getattr(record, name)


def test_what_is_ready_lies_beside_its_card() -> None:
    ready = [release.name for release in shipped_releases() if release.status == "ready"]
    assert ready == [READY]


def test_what_is_committed_is_of_the_release_and_loads_without_us() -> None:
    check_ready(CARDS / READY, read_release(find_release(READY), overrides=AS_TRAINED))
    folders = [record.parent for record in (CARDS / READY).rglob(RECORD)]
    assert {folder.name for folder in folders} == COMMITTED
    for path, digest in digests_of(CARDS / READY).items():
        if (CARDS / READY / path).parent in folders:
            assert sha256((CARDS / READY / path).read_bytes()).hexdigest() == digest
    saes: list[SAE[Any]] = [SAE.load_from_disk(folder) for folder in folders]
    inputs = [probe_inputs(sae) for sae in saes]
    alone = encode_in_saelens_alone(list(zip(folders, inputs, strict=True)))
    for sae, each, encoded in zip(saes, inputs, alone, strict=True):
        torch.testing.assert_close(encoded, sae.encode(each))
        assert encoded.any()


def test_the_commands_lead_from_nothing_to_from_pretrained(
    hub_here: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the page beside the card, of a copy that is trained shorter."""
    block, *_ = blocks_of(CARDS / "README.md")
    options = [f"--set {key}={value}" for key, value in SHORTER.items()]
    options += [f"--only {sae_id}" for sae_id in TRAINED]
    script = block.text
    for command, added in {
        f"train {READY}": " ".join(options),
        "evaluate ": f"{FEWER_ROWS} ",
        "upload ": "--yes ",
    }.items():
        assert script.count(f"sae-lens-c2r {command}") == 1
        script = script.replace(command, f"{command} {added}")
    hub_here.accounts[TOKEN] = Account("sae-lens-c2r")
    for name, value in {"ENDPOINT": hub_here.endpoint, "TOKEN": TOKEN}.items():
        monkeypatch.setenv(f"HF_{name}", value)
    Shell.in_folder(tmp_path).run(f"export HF_HUB_OFFLINE=0\n{script}")
    release = read_release(find_release(READY), overrides=SHORTER)
    release = release.model_copy(update={"grids": release.grids[3:]})  # those of `TRAINED`
    check_ready(tmp_path / "hub_cards" / READY, release)
    repo = hub_here.repos[release.repo_id]
    assert not repo.private
    for spec in release.saes():
        here: SAE[Any] = SAE.load_from_disk(tmp_path / "saes" / READY / spec.sae_id)
        there: SAE[Any] = SAE.from_pretrained(release.repo_id, spec.sae_id)
        inputs = torch.randn(16, here.cfg.d_in, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(there.encode(10 * inputs), here.encode(10 * inputs))
        assert here.encode(10 * inputs).any()
