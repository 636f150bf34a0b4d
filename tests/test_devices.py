"""What is the same on every device that this machine has: training, measures, commands."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import SAE
from torch import Tensor

from sae_lens_c2r import c2r_penalty
from sae_lens_c2r.analysis import co_firing, composition
from sae_lens_c2r.analysis.similarity import pairs_above
from sae_lens_c2r.penalties import step_generator
from sae_lens_c2r.penalties.cosines import VALUES_PER_TILE
from tests.architectures.training import D_IN, D_SAE, make_sae, make_trainer, noise, step_input
from tests.command import run_command
from tests.docs.commands import FEWER_ROWS
from tests.properties import gradients
from tests.releases.test_files import write
from tests.strategies import ARCHITECTURES, WITH_C2R, Case


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_architecture_trains_and_loads_on_a_cpu(
    architecture: str, autocast: bool, device: str, tmp_path: Path
) -> None:
    sae = make_sae(architecture).to(device)
    about: dict[str, Any] = {"device": device, "autocast": autocast}
    make_trainer(sae, 12, noise(), dead_feature_window=3, **about).fit()
    assert all(parameter.isfinite().all() for parameter in sae.parameters())
    sae.save_inference_model(tmp_path)
    sae_in = next(noise(seed=7))
    there, here = (SAE.load_from_disk(tmp_path, device=each) for each in (device, "cpu"))
    found, expected = there(sae_in.to(device)).cpu(), here(sae_in)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("values", [16 * 16, None])
@pytest.mark.parametrize("pairs", ["nearest", "all"])
def test_tiles_and_devices_give_one_penalty(
    pairs: str, values: int | None, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = torch.randn(32, 200, dtype=torch.float64)
    case = Case(acts, torch.randn(200, 16, dtype=torch.float64))

    def penalty(acts: Tensor, W_dec: Tensor) -> Tensor:
        generator = step_generator(0, 0)
        return c2r_penalty(acts, W_dec, pairs=pairs, chunk_size=96, generator=generator)

    expected = gradients(penalty, case)
    if values is not None:
        monkeypatch.setitem(
            VALUES_PER_TILE, "cpu" if device == "cpu" else "accelerator", values
        )
    there = Case(case.feature_acts.to(device), case.W_dec.to(device))
    for found, right in zip(gradients(penalty, there), expected, strict=True):
        torch.testing.assert_close(found.cpu(), right)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU is waited for")
@pytest.mark.parametrize("architecture", WITH_C2R)
def test_a_penalty_step_does_not_wait_for_a_gpu(architecture: str) -> None:
    sae = make_sae(architecture, c2r_chunk_size=16).to("cuda")
    given = step_input(sae)
    given.sae_in = given.sae_in.to("cuda")
    acts = torch.rand(len(given.sae_in), D_SAE, device="cuda", requires_grad=True)
    torch.cuda.set_sync_debug_mode("error")
    try:
        sum(sae._penalty_losses(given, acts).values()).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_measures_are_the_same(device: str) -> None:
    acts, W_dec = torch.randn(256, D_SAE).relu(), torch.randn(D_SAE, D_IN)
    found, expected = (
        (
            co_firing([acts.to(each)]).summary(),
            composition(W_dec.to(each)),
            pairs_above(W_dec.to(each), 0.5).tolist(),
        )
        for each in (device, "cpu")
    )
    assert found[:2] == (expected[0], pytest.approx(expected[1]))
    assert found[2] == expected[2]


@pytest.mark.usefixtures("forked")
def test_a_release_is_trained_evaluated_and_inspected(device: str, tmp_path: Path) -> None:
    grids = [{"id": "x", "sae": {"architecture": "batchtopk_c2r"}}]
    release, saes, out = write(tmp_path, grids=grids), tmp_path / "saes", tmp_path / "out"
    commands: list[tuple[object, ...]] = [
        ("train", release, "--out", saes),
        ("evaluate", saes, "--out", out, *FEWER_ROWS.split()),
        ("inspect", saes, "--out", tmp_path / "report"),
    ]
    for command in commands:
        ran = run_command(*command, "--device", device)
        assert ran.returncode == 0, ran.stderr
    record = json.loads((saes / "x" / "training.json").read_text())
    assert torch.device(record["device"].partition(" ")[0]).type == device
    [sae] = json.loads((out / "evaluation.json").read_text())["saes"]
    assert 0 < sae["evaluations"]["sae_lens"]["metrics"]["l0"] <= 1024
