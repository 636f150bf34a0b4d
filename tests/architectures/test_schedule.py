"""When a penalty is applied, what is logged of it, and that a resumed run goes on alike."""

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from sae_lens_c2r import composition
from sae_lens_c2r.architectures import penalized
from sae_lens_c2r.penalties import neighbors
from tests.architectures.training import (
    make_config,
    make_sae,
    make_trainer,
    noise,
    penalties_of,
    step_input,
)

METRICS = ("penalty", "effective_coefficient", "mean_max_cosine")


@pytest.mark.parametrize("architecture", ["batchtopk_c2r", "ort"])
def test_a_penalty_is_added_at_every_interval_th_step_and_shown_at_each(
    architecture: str,
) -> None:
    (name,) = penalties_of(architecture)
    sae = make_sae(architecture, **{f"{name}_chunk_size": 8, f"{name}_interval": 5})
    outputs = [sae.training_forward_pass(step_input(sae, step)) for step in range(12)]
    penalized = [step for step, output in enumerate(outputs) if f"{name}_loss" in output.losses]
    assert penalized == [0, 5, 10]
    for output in outputs:
        torch.testing.assert_close(output.loss, sum(output.losses.values()))
    for metric in (f"{name}_{metric}" for metric in METRICS):
        assert outputs[4].metrics[metric] == outputs[0].metrics[metric]
        assert outputs[5].metrics[metric] != outputs[0].metrics[metric]
        assert not getattr(outputs[0].metrics[metric], "requires_grad", False)
    product = 5 * outputs[0].metrics[f"{name}_effective_coefficient"]
    product *= outputs[0].metrics[f"{name}_penalty"]
    torch.testing.assert_close(outputs[0].losses[f"{name}_loss"].detach(), product)


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        # (d / d0) * ln n0 / ln n: the paper's 2,304 dimensions and 8,192 candidates
        ({}, 49 * (2 / 2304) * 13 / 1 * 0.25),
        ({"ort_scaling": "none"}, 0.25),
    ],
)
def test_ort_loss_is_its_equation(options: dict[str, str], factor: float) -> None:
    """T * coefficient * r^2 * chance factor * mean squared cosine, of rows at 60 degrees."""
    sae = make_sae("ort", d_sae=2, d_in=2, k=1, ort_interval=3, ort_coefficient=0.5, **options)
    sae.W_dec.data = torch.tensor([[3.0, 0.0], [0.5, 0.75**0.5]])
    sae_in = 7 * torch.nn.functional.normalize(torch.randn(8, 2), dim=1)
    output = sae.training_forward_pass(step_input(sae, 0, sae_in=sae_in))
    assert output.losses["ort_loss"].item() == pytest.approx(3 * 0.5 * factor, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"ort_chunk_size": 8, "c2r_chunk_size": 8}, [0, 5]),
        ({"ort_seed": 1}, [0, 0, 5, 5]),
        ({"ort_chunk_size": 16}, [0, 0, 5, 5]),
        ({"ort_interval": 3}, [0, 3, 5]),
    ],
)
def test_penalties_of_a_step_that_draw_the_same_chunks_share_a_search(
    options: dict[str, int], steps: list[int]
) -> None:
    sae, searched = make_sae("ort_c2r", **options), list[int]()
    with patch.object(penalized, "search", wraps=neighbors.search) as search:
        for step in range(6):
            sae.training_forward_pass(step_input(sae, step))
            searched += [step] * (search.call_count - len(searched))
    assert searched == steps


@pytest.mark.parametrize("pairs", ["nearest", "all"])
def test_nothing_is_searched_for_a_metric_alone(pairs: str) -> None:
    sae = make_sae("batchtopk_c2r", c2r_pairs=pairs)
    with patch.object(penalized, "search", wraps=neighbors.search) as search:
        metrics = sae.training_forward_pass(step_input(sae)).metrics
    assert search.call_count == (pairs == "nearest") == ("c2r_mean_max_cosine" in metrics)


@pytest.mark.parametrize("architecture", ["batchtopk_c2r", "ort"])
def test_a_run_resumed_between_two_penalties_shows_the_last_at_its_first_log(
    architecture: str,
) -> None:
    (name,) = penalties_of(architecture)
    outputs = []
    for step in (5, 9):
        sae = make_sae(architecture, **{f"{name}_chunk_size": 16})
        outputs.append(sae.training_forward_pass(step_input(sae, step, logging=True)))
    last, resumed = outputs
    assert {f"{name}_{metric}" for metric in METRICS} <= resumed.metrics.keys()
    assert f"{name}_loss" not in resumed.losses
    of_chunks = f"{name}_mean_max_cosine"
    assert resumed.metrics[of_chunks] == last.metrics[of_chunks]


def test_inference_does_not_spoil_training() -> None:
    sae = make_sae("topk_c2r")
    with torch.inference_mode():
        sae.training_forward_pass(step_input(sae))
    sae.training_forward_pass(step_input(sae)).loss.backward()


def test_before_the_start_step_a_penalty_is_only_measured() -> None:
    sae = make_sae("batchtopk_c2r", c2r_start_step=7, c2r_interval=5)
    outputs = [sae.training_forward_pass(step_input(sae, step)) for step in range(12)]
    assert [s for s, output in enumerate(outputs) if "c2r_loss" in output.losses] == [10]
    assert outputs[0].metrics["c2r_penalty"] > 0
    assert outputs[0].metrics["c2r_effective_coefficient"] == 0
    assert outputs[10].metrics["c2r_effective_coefficient"] > 0


@pytest.mark.parametrize("architecture", ["batchtopk_c2r", "ort"])
def test_the_coefficient_is_warmed_up_by_sae_lens(architecture: str) -> None:
    (name,) = penalties_of(architecture)
    options = {f"{name}_coefficient": 8.0, f"{name}_warm_up_steps": 4, f"{name}_interval": 1}
    trainer = make_trainer(make_sae(architecture, **options), 6, noise())
    batches, seen, effective = noise(), [], []
    for _ in range(6):
        seen.append(trainer.get_coefficients()[name])
        output = trainer.step(next(batches))
        effective.append(float(output.metrics[f"{name}_effective_coefficient"]))
        trainer.n_training_steps += 1
    assert seen == [0.0, 2.0, 4.0, 6.0, 8.0, 8.0]
    assert effective[0] == 0
    assert 0 < effective[1] < effective[2] < effective[3]


def test_the_penalty_makes_the_decoder_less_redundant() -> None:
    compositions = []
    for coefficient in (0.0, 5.0):
        sae = make_sae("batchtopk_c2r", c2r_coefficient=coefficient)
        sae.W_dec.data[1] = sae.W_dec.data[0]
        make_trainer(sae, 100, noise()).fit()
        compositions.append(composition(sae.W_dec))
    assert compositions[1] < compositions[0]


BAD = [
    *(("coefficient", value, ValueError) for value in (-1.0, float("inf"), 10**400)),
    *(("coefficient", "5", TypeError), ("warm_up_steps", -1, ValueError)),
    *(("start_step", -5, ValueError), ("interval", 0, ValueError)),
    *(("interval", 2.5, TypeError), ("chunk_size", 1, ValueError)),
    *(("scaling", "auto", ValueError), ("seed", 0.5, TypeError)),
]
OF_C2R = [
    *(("exponent", 0.0, ValueError), ("exponent", float("nan"), ValueError)),
    *(("pairs", "some", ValueError), ("gate", "tanh", ValueError)),
]


@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        (f"{name}_{option}", *rest)
        for name, cases in (("c2r", BAD + OF_C2R), ("ort", BAD))
        for option, *rest in cases
    ],
)
def test_bad_options_are_named(option: str, value: object, error: type) -> None:
    with pytest.raises(error, match=f"Parameter `{option}` should .*Found `{option} = "):
        make_config("ort_c2r", **{option: value})


@pytest.mark.parametrize("misspelt", ["c2r_lambda", "c2r_coeficient", "ort_intrval"])
@pytest.mark.parametrize("architecture", ["batchtopk_c2r", "ort", "ort_c2r"])
def test_a_misspelt_field_is_refused_with_the_names_that_there_are(
    architecture: str, misspelt: str
) -> None:
    config = make_config(architecture)
    values = {**config.to_dict(), "of_another_package": 1}
    assert type(config).from_dict(values) == config
    with pytest.raises(ValueError, match=f"`{misspelt}` should ") as refused:
        type(config).from_dict({**values, misspelt: 3})
    known = {name for name in config.to_dict() if name.startswith(("c2r_", "ort_"))}
    assert {*known, misspelt} == set(re.findall(r"(?:c2r|ort)_\w+", str(refused.value)))


@pytest.mark.parametrize("scalar", [np.float32, torch.tensor])
def test_scalars_of_numpy_and_torch_are_kept_as_numbers(scalar: Any) -> None:
    config = make_config("ort_c2r", c2r_coefficient=scalar(2.5), ort_interval=np.int64(3))
    kept = json.loads(json.dumps(config.to_dict()))
    assert (kept["c2r_coefficient"], kept["ort_interval"]) == (2.5, 3)


def test_the_backbone_still_checks_its_own_options() -> None:
    with pytest.raises(ValueError, match="normalize_activations"):
        make_config("batchtopk_c2r", normalize_activations="sometimes")


def test_what_the_coefficients_came_to_is_saved(tmp_path: Path) -> None:
    sae = make_sae("ort_c2r")
    sae.save_inference_model(tmp_path / "untrained")
    metrics = sae.training_forward_pass(step_input(sae)).metrics
    sae.save_inference_model(tmp_path / "trained")
    said = [
        json.loads((tmp_path / name / "cfg.json").read_text())["metadata"]
        for name in ("untrained", "trained")
    ]
    for name in ("c2r", "ort"):
        key = f"{name}_effective_coefficient"
        assert key not in said[0]
        assert said[1][key] == float(metrics[key]) > 0


def test_an_sae_that_is_resumed_shows_what_it_has_shown() -> None:
    sae, resumed = make_sae("ort_c2r"), make_sae("ort_c2r")
    sae.training_forward_pass(step_input(sae))
    resumed.penalty_metrics = sae.penalty_metrics
    shown = [each.training_forward_pass(step_input(each, 1)).metrics for each in (sae, resumed)]
    ours = [key for key in shown[0] if key.startswith(("c2r_", "ort_"))]
    assert len(ours) == 6
    assert [shown[0][key] for key in ours] == [shown[1][key] for key in ours]
