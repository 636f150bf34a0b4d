"""Releases whose SAEs start from SAEs that exist."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import SAE
from sae_lens.training.sae_trainer import SAETrainer
from safetensors.torch import load_file, save_file

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.files import read_release
from sae_lens_c2r.releases.from_sae import release_from
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import Plan, make_plan
from sae_lens_c2r.training.train import train
from tests.hub.conftest import say
from tests.language_model import RUNNER as SAVED_RUNNER
from tests.releases.test_files import write
from tests.saes.forms import TRAINED_AS, K, make_form
from tests.training.test_plan import printed

Origin = Callable[..., Path]
D_IN, D_SAE = 8, 24
AS_C2R = {form: f"{form}_c2r" for form in TRAINED_AS} | {"jumprelu": "batchtopk_c2r"}
WEIGHTS = "sae_weights.safetensors"
ESTIMATED = "expected_average_only_in"
RUNNER = {
    **SAVED_RUNNER,
    "train_batch_size_tokens": 50,
    "n_batches_for_norm_estimate": 3,
}
LANGUAGE_MODEL = {
    "hub_id": "google/gemma-2-2b",
    "hook_name": "blocks.1.hook_resid_post",
    "dataset": "org/text",
    "context_size": 64,
    "training_tokens": 1000,
}


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    """Writes an SAE of a form, and says where."""

    def written(form: str = "jumprelu", *, metadata: Any = (), **options: Any) -> Path:
        sae = make_form(form, d_in=D_IN, d_sae=D_SAE, **options)
        sae.b_dec.data.zero_()
        sae.save_model(tmp_path / "origin")
        return say(tmp_path / "origin", **dict(metadata))

    return written


def plan_of(
    tmp_path: Path,
    init: Any,
    *architectures: str,
    release: dict[str, Any] | None = None,
    **fields: Any,
) -> Plan:
    """A release of an SAE for each architecture, all of which start from one SAE."""
    changed = {
        "runner": RUNNER,
        "sae": {"init": init, **fields},
        "grids": [{"id": "{architecture}", "axes": {"architecture": list(architectures)}}],
        **(release or {}),
    }
    path = write(tmp_path, **changed)
    return make_plan(read_release(path), device="cpu")


def folder(path: Path) -> dict[str, str]:
    return {"folder": str(path)}


@pytest.mark.parametrize("normalized", ["none", ESTIMATED])
@pytest.mark.parametrize("form", TRAINED_AS)
def test_without_learning_it_stays_what_it_starts_from(
    tmp_path: Path, form: str, normalized: str, origin: Origin
) -> None:
    """From the release to what is saved, by SAELens's runner, its estimate and its fold."""
    where = origin(form)
    fields = {"topk_threshold_lr": 0.0, "k": K} if form == "jumprelu" else {}
    plan = plan_of(
        tmp_path,
        folder(where),
        AS_C2R[form],
        release={"runner": {**RUNNER, "lr": 0.0, "lr_end": 0.0}},
        normalize_activations=normalized,
        **fields,
    )
    [trained] = train(plan, tmp_path / "out")
    inputs = 3 * torch.randn(32, D_IN, generator=torch.Generator().manual_seed(0))
    before, after = SAE.load_from_disk(where), SAE.load_from_disk(trained)
    assert after.cfg.architecture() == form
    with torch.no_grad():
        torch.testing.assert_close(after(inputs), before(inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["jumprelu", "matching_pursuit"])
def test_a_resumed_run_does_not_start_anew(
    tmp_path: Path, form: str, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, with inputs that are scaled by an estimate at the first step alone."""
    fields: dict[str, Any] = {"k": K} if form == "jumprelu" else {}
    fields["normalize_activations"] = ESTIMATED
    plan = plan_of(tmp_path, folder(origin(form)), AS_C2R[form], **fields)

    take = SAETrainer.step

    def take_seven(trainer: SAETrainer[Any, Any], batch: torch.Tensor) -> Any:
        if trainer.n_training_steps == 7:
            raise KeyboardInterrupt
        return take(trainer, batch)

    [whole] = train(plan, tmp_path / "whole")
    with monkeypatch.context() as stopping:
        stopping.setattr(SAETrainer, "step", take_seven)
        with pytest.raises(KeyboardInterrupt):
            train(plan, tmp_path / "cut", checkpoint_minutes=1e-9)
    told: list[str] = []
    [resumed] = train(plan, tmp_path / "cut", resume=True, log=told.append)
    assert told == ["Continuing from step 7 of 20."]
    contents = [(path / WEIGHTS).read_bytes() for path in (whole, resumed)]
    assert contents[0] == contents[1]
    configs = [json.loads((path / "cfg.json").read_text()) for path in (whole, resumed)]
    assert configs[0] == configs[1]


def test_what_it_started_from_is_recorded_and_another_is_another_training(
    tmp_path: Path, origin: Origin
) -> None:
    where, out = origin(), tmp_path / "out"
    say(where, {"license": "apache-2.0"})
    [trained] = train(plan_of(tmp_path, folder(where), "batchtopk", k=K), out)
    started = json.loads((trained / "training.json").read_text())["started_from"]
    assert (started["folder"], started["license"]) == (str(where), "apache-2.0")
    assert started["sha256"].keys() == {"cfg.json", WEIGHTS}
    moved = where.rename(tmp_path / "moved")
    told: list[str] = []
    again = plan_of(tmp_path, folder(moved), "batchtopk", k=K)
    assert train(again, out, log=told.append) == []
    assert told == ["batchtopk is there already."]
    other = plan_of(tmp_path, folder(origin(seed=1)), "batchtopk", k=K)
    with pytest.raises(
        UserError, match=r"no other batchtopk than the plan's.*init\.sae_weights"
    ):
        train(other, out)


def test_an_origin_that_changes_before_it_is_begun_with_is_refused(
    tmp_path: Path, origin: Origin
) -> None:
    plan = plan_of(tmp_path, folder(origin()), "batchtopk", k=K)
    origin(seed=1)
    with pytest.raises(UserError, match="should be as recorded"):
        train(plan, tmp_path / "out")


@pytest.mark.parametrize("more", [{"license": "mit"}, {"revision": "v1"}, {"repo": "a/b"}])
def test_an_init_says_no_more_than_the_place(
    tmp_path: Path, origin: Origin, more: dict[str, str]
) -> None:
    """The licence is the SAE's own."""
    with pytest.raises(UserError, match=r"^`sae\.init` should have a `folder`"):
        plan_of(tmp_path, {**folder(origin()), **more}, "batchtopk")


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_an_init_without_usable_numbers_is_refused(
    tmp_path: Path, origin: Origin, value: float
) -> None:
    where = origin()
    weights = load_file(where / WEIGHTS)
    weights["W_dec"][slice(None) if value == 0 else (1, 2)] = value
    save_file(weights, where / WEIGHTS)
    with pytest.raises(UserError, match=f"{where}: `W_dec` should"):
        plan_of(tmp_path, folder(where), "batchtopk")
    with pytest.raises(UserError, match=f"{where}: `W_dec` should"):
        release_from(SAERef(folder=where), "mine", tokens=1, changes={})


def of_model(**changed: Any) -> dict[str, Any]:
    """Changes of a release, to one of a language model."""
    source = {**LANGUAGE_MODEL, **changed}
    return {"release": {"runner": {}, "language_model": source}}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            of_model(hub_id="google/gemma-2-9b"),
            "gemma-2-2b, as for the SAE. Found google/gemma-2-9b",
        ),
        (of_model(hook_name="blocks.2.hook_resid_post"), "blocks.1.* Found blocks.2"),
        ({"d_in": 9}, "`sae.d_in` should be 8"),
        ({"k": None}, "`sae.k`"),
    ],
)
def test_other_inputs_are_refused_with_both_names(
    tmp_path: Path, origin: Origin, fields: dict[str, Any], says: str
) -> None:
    model = {"model_name": "gemma-2-2b", "hook_name": "blocks.1.hook_resid_post"}
    where = folder(origin(metadata=() if "d_in" in fields or "k" in fields else model))
    if "release" in fields:
        assert plan_of(tmp_path, where, "batchtopk", k=K, **of_model()).starts
    with pytest.raises(UserError, match=says) as raised:
        plan_of(tmp_path, where, "batchtopk", **{"k": K, **fields})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("said", ["gpt2", "gpt2-small", "openai-community/gpt2"])
def test_a_model_of_several_names_is_one(tmp_path: Path, origin: Origin, said: str) -> None:
    where = folder(origin(metadata={"model_name": said}))
    for name in ("gpt2", "gpt2-small"):
        changed = of_model(hub_id="openai-community/gpt2", name=name)
        assert plan_of(tmp_path, where, "batchtopk", k=K, **changed).starts
    changed = of_model(hub_id="openai-community/gpt2-medium", name="gpt2-medium")
    with pytest.raises(UserError, match=f"`language_model` should be {said}"):
        plan_of(tmp_path, where, "batchtopk", k=K, **changed)


def test_what_may_surprise_is_told_before_training(tmp_path: Path, origin: Origin) -> None:
    about = {"context_size": 128, "prepend_bos": False}
    where = origin("standard", metadata=about, dtype="bfloat16")
    say(where, {"license": "cc-by-nc-nd-4.0"})
    plan = plan_of(tmp_path, folder(where), "standard_c2r", **of_model())
    text = printed(plan)
    assert f"standard_c2r starts from {where}, under cc-by-nc-nd-4.0." in text
    for told in (
        *("`context_size` is 64, and was 128", "`prepend_bos` is True, and was False"),
        *(
            "`dtype` is float32, and was bfloat16",
            "`l1_coefficient` is 1.0, which is the SAE's",
        ),
    ):
        assert f"Warning: {told}" in text
