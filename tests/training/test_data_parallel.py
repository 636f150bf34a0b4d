"""SAEs whose batches are split over processes: trained as by one that has all of each batch."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from sae_lens import SAETrainer, TopKTrainingSAE, TrainingSAE
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class
from torch import Tensor

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.architectures.c2r import C2RMixin
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.training.data_parallel import (
    DataParallelTrainer,
    JoinedBatchTopK,
    group_size,
    is_joinable,
    place,
    smallest_positive,
)
from sae_lens_c2r.training.plan import Plan, make_plan
from tests.architectures.training import (
    D_IN,
    backbone_of,
    make_config,
    make_sae,
    make_trainer,
    step_input,
)
from tests.process_groups import in_processes
from tests.strategies import ARCHITECTURES

STEPS, BATCH = 32, 36
TRAINED = [*ARCHITECTURES, "batchtopk"]  # one without a penalty: all else of it ours have
FLOAT32 = "jumprelu_c2r with thresholds of float32, as SAELens has them"
OPTIONS: dict[str, dict[str, Any]] = {
    "standard": {"l1_coefficient": 2.0, "l1_warm_up_steps": 16},
    "gated": {"l1_coefficient": 2.0, "l1_warm_up_steps": 16},
    "jumprelu": {
        **{"l0_coefficient": 0.3, "l0_warm_up_steps": 16, "jumprelu_bandwidth": 0.5},
        "pre_act_loss_coefficient": 0.1,
    },
    "matryoshka_batchtopk": {"use_matryoshka_aux_loss": True},
}
PENALTIES = {
    "c2r": {"c2r_interval": 2, "c2r_chunk_size": 20, "c2r_warm_up_steps": 24},
    "ort": {"ort_interval": 3, "ort_chunk_size": 20, "ort_coefficient": 5.0},
}


def make(architecture: str, thresholds: torch.dtype = torch.float64) -> TrainingSAE[Any]:
    """An SAE of which every number is one of float64."""
    options = dict(OPTIONS.get(architecture.removesuffix("_c2r"), {}))
    for name, fields in PENALTIES.items():
        if name in architecture.split("_"):
            options |= fields
    sae = make_sae(
        architecture,
        dtype="float64",
        normalize_activations="expected_average_only_in",
        **options,
    )
    if "jumprelu" in architecture:  # SAELens keeps it in float32
        sae.threshold = torch.nn.Parameter(sae.threshold.detach().to(thresholds))
    for name, bias in sae.named_parameters():
        if name in {"b_enc", "b_gate"}:
            bias.data[:4] = -4  # latents that are dead at first
    return sae


def batches() -> Iterator[Tensor]:
    """Samples of which those of the first parts are larger than others."""
    generator = torch.Generator().manual_seed(1)
    scale = torch.linspace(3, 0.3, BATCH, dtype=torch.float64)[:, None]
    while True:
        yield scale * torch.randn(BATCH, D_IN, generator=generator, dtype=torch.float64)


def split(trainer: SAETrainer[Any, Any], process_group: Any) -> DataParallelTrainer:
    return DataParallelTrainer(
        cfg=trainer.cfg,
        sae=trainer.sae,
        data_provider=trainer.data_provider,
        process_group=process_group,
    )


def trained(
    architecture: str, process_group: Any, thresholds: torch.dtype = torch.float64
) -> dict[str, Any]:
    """Return the weights, the statistics and the log, with counts of dead and of clipped."""
    trainer = make_trainer(
        make(architecture, thresholds),
        STEPS,
        batches(),
        **{"total_training_samples": STEPS * BATCH, "train_batch_size_samples": BATCH},
        **{"dead_feature_window": 2, "feature_sampling_window": 20, "lr_warm_up_steps": 8},
    )
    if process_group is not None:
        trainer = split(trainer, process_group)
    trainer.activation_scaler.estimate_scaling_factor(
        D_IN, trainer.data_provider, n_batches_for_norm_estimate=4
    )
    n_dead, norms, clip = 0, list[float](), torch.nn.utils.clip_grad_norm_

    def clip_and_record(*arguments: Any) -> None:
        norms.append(float(clip(*arguments)))

    with patch.object(torch.nn.utils, "clip_grad_norm_", clip_and_record):
        for batch in islice(trainer.data_provider, STEPS):
            if trainer.n_training_steps % trainer.cfg.feature_sampling_window == 0:
                trainer._reset_running_sparsity_stats()
            n_dead += int(trainer.dead_neurons.sum())
            output = trainer.step(batch)
            trainer.n_training_steps += 1
    log = trainer.build_train_step_log_dict(output, trainer.n_training_samples)
    trainer.set_final_sae_metadata()
    return {
        "weights": trainer.sae.state_dict(),
        "frequencies": trainer.act_freq_scores,
        "since fired": trainer.n_forward_passes_since_fired,
        "samples": trainer.n_training_samples,
        "log": log,
        "metadata": [trainer.sae.cfg.metadata.l0, trainer.sae.cfg.metadata.num_dead_features],
        "dead": n_dead,
        "clipped": sum(norm > 1 for norm in norms),
    }


def all_trained(rank: int | None) -> dict[str, dict[str, Any]]:
    group = None if rank is None else dist.group.WORLD
    found = {architecture: trained(architecture, group) for architecture in TRAINED}
    return {**found, FLOAT32: trained("jumprelu_c2r", group, torch.float32)}


@pytest.fixture(scope="module")
def alone() -> dict[str, dict[str, Any]]:
    """By one process that is given the same batches."""
    found = all_trained(None)
    for architecture, each in found.items():
        # What is to be compared has to happen.
        assert each["clipped"], architecture
        assert each["dead"], architecture
        assert each["log"].get("losses/auxiliary_reconstruction_loss") != 0, architecture
    return found


@pytest.mark.parametrize("n", [pytest.param(2, marks=pytest.mark.exhaustive), 3])
def test_every_architecture_is_trained_as_by_one_process(
    n: int, tmp_path: Path, alone: dict[str, dict[str, Any]]
) -> None:
    found = in_processes(n, all_trained, folder=tmp_path)
    for architecture, by_one in alone.items():
        first, *others = (each[architecture] for each in found)
        for name, weight in by_one["weights"].items():
            difference = float((first["weights"][name] - weight).abs().max())
            exact = 1e-6 if architecture == FLOAT32 else 1e-12
            assert difference <= exact, f"{name} of {architecture}: {difference}"
            for each in others:
                assert torch.equal(each["weights"][name], first["weights"][name])
        for each in [first, *others]:
            for name in ("frequencies", "since fired"):
                assert torch.equal(each[name], by_one[name]), f"{name} of {architecture}"
            for name in ("samples", "metadata", "dead", "clipped"):
                assert each[name] == by_one[name], f"{name} of {architecture}"
            assert each["log"] == pytest.approx(by_one["log"], rel=1e-6)  # L0 is one of float32


def values_kept(rank: int) -> list[Tensor]:
    """Return what a process keeps of batches that are equal, or scaled by its rank."""
    equal, nothing = torch.tensor([[1.0, 1.0], [0.5, 1.0]]), -torch.ones(2, 2)
    kept = [
        JoinedBatchTopK(k, dist.group.WORLD)(acts)
        for k, acts in [(0.75, equal), (0.75, equal * (1 + rank)), (1.0, nothing), (0.2, equal)]
    ]
    return kept + [
        smallest_positive(acts, dist.group.WORLD) for acts in (equal + rank, nothing)
    ]


def test_of_equal_activations_those_of_the_first_process_are_kept(tmp_path: Path) -> None:
    first, second = in_processes(2, values_kept, folder=tmp_path)
    kept = [[int(acts.count_nonzero()) for acts in each] for each in (first, second)]
    assert kept == [[3, 0, 0, 0, 1, 0], [0, 3, 0, 0, 1, 0]]
    assert float(first[-2]) == float(second[-2]) == 0.5


def refuse_unequal_parts(_rank: int) -> None:
    odd, even = (
        make_trainer(make("topk"), 2, batches(), train_batch_size_samples=size)
        for size in (7, 8)
    )
    says = (
        r"^A batch should have a multiple of 2 samples, where 2 processes share it\. Found 7\.$"
    )
    with pytest.raises(UserError, match=says):
        split(odd, dist.group.WORLD)
    with pytest.raises(UserError, match=says):
        split(even, dist.group.WORLD).step(torch.zeros(7, D_IN, dtype=torch.float64))


def test_parts_that_are_not_equal_are_refused(tmp_path: Path) -> None:
    in_processes(2, refuse_unequal_parts, folder=tmp_path)


def outside_a_step(rank: int) -> list[Any]:
    """Before and after a step, in one process that another does not wait for."""
    sae = make("matryoshka_batchtopk_c2r")
    trainer = make_trainer(sae, 2, batches(), train_batch_size_samples=BATCH)
    trainer = split(trainer, dist.group.WORLD)
    generator = torch.Generator().manual_seed(rank)
    acts = torch.randn(BATCH, D_IN, generator=generator, dtype=torch.float64)
    trainer.step(acts)
    if rank == 0:
        return []
    sae.update_topk_threshold(torch.ones(1))
    sae.training_forward_pass(step_input(sae, sae_in=acts)).loss.backward()
    return [int(sae.encode(acts).count_nonzero()), sae.process_group]


def test_outside_of_its_steps_an_sae_is_its_process_s_own(tmp_path: Path) -> None:
    _, second = in_processes(2, outside_a_step, folder=tmp_path)
    assert second == [4 * BATCH, None]


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Four SAEs, in batches of 2,048."""
    return make_plan(read_release(find_release("minilm-layer-3")), device="cpu")


def test_all_saes_have_as_many_processes(plan: Plan) -> None:
    assert [group_size(plan, n) for n in (1, 2, 3, 4, 8, 16)] == [1, 1, 1, 1, 2, 4]
    with pytest.raises(UserError, match=r"SAEs, 4, or a multiple of that number\. Found 6\."):
        group_size(plan, 6)
    with pytest.raises(UserError, match=r"a multiple of 3 samples.*Found 2,048\."):
        group_size(plan, 12)


def test_of_architectures_of_others_it_is_not_known_what_depends_on_a_batch(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {*ARCHITECTURES, *map(backbone_of, ARCHITECTURES)}
    assert all(is_joinable(get_sae_training_class(name)[0]) for name in known)

    class Mine(TopKTrainingSAE):
        pass

    class MineC2R(C2RMixin, Mine):
        pass

    assert not is_joinable(MineC2R)
    config_class = get_sae_training_class("topk")[1]
    monkeypatch.setitem(SAE_TRAINING_CLASS_REGISTRY, "topk", (Mine, config_class))
    mine = replace(plan, saes={"mine": config_class(d_in=4, d_sae=8, k=2)})
    assert group_size(mine, 1) == 1
    with pytest.raises(UserError, match=r"mine is 'topk'\. Found 2"):
        group_size(mine, 2)


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8), n_ranks=st.integers(1, 5))
def test_every_sae_is_placed_once_in_order_and_no_process_has_too_much(
    sizes: list[int], n_ranks: int
) -> None:
    configs = {str(i): make_config("topk", d_in=2, d_sae=n, k=1) for i, n in enumerate(sizes)}
    shares = place(configs, n_ranks)
    assert sorted(sae_id for share in shares for sae_id in share) == sorted(configs)
    assert all(share == sorted(share, key=int) for share in shares)
    latents = [sum(configs[i].d_sae for i in share) for share in shares]
    assert max(latents) - min(latents) <= max(sizes)
