"""How many processes share the batches of an SAE."""

from dataclasses import replace

import pytest
from sae_lens import TopKTrainingSAE
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.architectures.c2r import C2RMixin
from sae_lens_c2r.releases.files import find_release, read_release
from sae_lens_c2r.training.costs import memory_bytes
from sae_lens_c2r.training.joined_step import is_joinable
from sae_lens_c2r.training.plan import Plan, make_plan
from sae_lens_c2r.training.teams import team_size
from tests.training.test_joined import ALL


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Four SAEs, in batches of 2,048."""
    return make_plan(read_release(find_release("minilm-layer-3")), device="cpu")


def test_all_saes_have_as_many_processes(plan: Plan) -> None:
    assert [team_size(plan, n) for n in (1, 2, 3, 4, 8, 16)] == [1, 1, 1, 1, 2, 4]
    with pytest.raises(UserError, match=r"SAEs, 4, or a multiple of that\. Found 6 of them"):
        team_size(plan, 6)
    with pytest.raises(UserError, match=r"a multiple of 3 samples.*Found 2,048\."):
        team_size(plan, 12)


def test_a_process_that_has_half_of_a_batch_needs_less_memory(plan: Plan) -> None:
    whole, half = (memory_bytes(plan, n_parts=n) for n in (1, 2))
    width = max(config.d_sae for config in plan.saes.values())
    assert whole - half == 3 * 4 * 1024 * width


def test_of_architectures_of_others_it_is_not_known_what_depends_on_a_batch(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert all(is_joinable(get_sae_training_class(name)[0]) for name in ALL)

    class Mine(TopKTrainingSAE):
        pass

    class MineC2R(C2RMixin, Mine):
        pass

    assert not is_joinable(MineC2R)
    config_class = get_sae_training_class("topk")[1]
    monkeypatch.setitem(SAE_TRAINING_CLASS_REGISTRY, "topk", (Mine, config_class))
    mine = replace(plan, saes={"mine": config_class(d_in=4, d_sae=8, k=2)})
    assert team_size(mine, 1) == 1
    with pytest.raises(UserError, match=r"mine is 'topk'\. Found 2 of them"):
        team_size(mine, 2)
