"""The demo's release is two SAEs that differ in the penalty, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from sae_lens_c2r.demo.options import BATCH_SIZE, PLAIN, REGULARIZED, DemoOptions
from sae_lens_c2r.demo.release import demo_release
from sae_lens_c2r.releases.files import find_release, read_release, shipped_releases
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.training.plan import Plan, make_plan


def plan(**options: Any) -> Plan:
    return make_plan(demo_release(DemoOptions(Path("out"), **options)), device="cpu")


def test_the_options_are_what_is_trained() -> None:
    found = plan(tokens=100_000, d_sae=256, k=7, c2r_coefficient=2.5, seed=3)
    assert list(found.saes) == [PLAIN, REGULARIZED]
    assert found.seeds == {PLAIN: 3, REGULARIZED: 3}
    assert found.runner["seed"] == 3
    for name, config in found.saes.items():
        assert config.architecture() == name
        assert (config.d_sae, config.k) == (256, 7)  # type: ignore[attr-defined]
    regularized: Any = found.saes[REGULARIZED]
    assert (regularized.c2r_coefficient, regularized.c2r_seed) == (2.5, 3)


def test_both_have_the_same_options_but_for_the_penalty() -> None:
    plain, regularized = (config.to_dict() for config in plan().saes.values())
    differ = {
        key for key in regularized if plain.get(key) != regularized[key] and key != "metadata"
    }
    assert all(key.startswith("c2r_") for key in differ - {"architecture"})
    assert "c2r_coefficient" in differ


def test_the_steps_are_those_of_all_tokens() -> None:
    assert plan().steps == 196  # 400,000 tokens
    assert plan(tokens=BATCH_SIZE).samples == BATCH_SIZE
    assert plan(tokens=BATCH_SIZE + 1).samples == 2 * BATCH_SIZE


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_every_seed_that_is_accepted_can_be_planned(seed: int) -> None:
    assert plan(seed=seed).seeds[PLAIN] == seed


def test_it_says_what_a_card_needs() -> None:
    release = demo_release(DemoOptions(Path("out")))
    assert release.license == "apache-2.0"
    assert "`sae-lens-c2r demo`" in release.description
    assert release.language_model is not None
    assert release.language_model.hub_id == "sentence-transformers/all-MiniLM-L6-v2"
    assert Release.model_validate(release.model_dump(mode="json")) == release


def test_it_is_not_among_the_releases_that_are_published() -> None:
    release = demo_release(DemoOptions(Path("out")))
    assert release.name not in {each.name for each in shipped_releases()}


def test_it_reads_the_model_as_the_release_of_the_same_layer_does() -> None:
    """What was tuned for one holds for the other."""
    known = read_release(find_release("minilm-layer-3"))
    release = demo_release(DemoOptions(Path("out")))
    assert release.language_model is not None
    assert known.language_model is not None
    for field in ("hub_id", "hook_name", "dataset", "context_size"):
        assert getattr(release.language_model, field) == getattr(known.language_model, field)
    for name in ("model_class_name", "prepend_bos", "exclude_special_tokens"):
        assert release.runner[name] == known.runner[name]
