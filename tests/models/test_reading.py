"""A reading holds all that decides which activations an SAE sees, whoever says it."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from sae_lens import LanguageModelSAERunnerConfig, MultiSAETrainingRunnerConfig
from sae_lens.saes.sae import SAEMetadata

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.models.reading import ADDED, Reading, complete, metadata_of
from sae_lens_c2r.models.text_source import TextSource

RUNNERS = (MultiSAETrainingRunnerConfig, LanguageModelSAERunnerConfig)
OTHER_NAMES = {"hook_names": "hook_name", "hook_head_indices": "hook_head_index"}
# Fields of SAELens's runner configs that do not decide which activations an SAE sees.
WITHOUT_EFFECT = {
    # Which SAEs there are, how many tokens of the text they are given, and in which order.
    *("saes", "sae", "from_pretrained_path", "training_tokens", "train_batch_size_tokens"),
    *("n_batches_in_buffer", "activations_mixing_fraction", "seed"),
    # How and where it is computed, and how a dataset is fetched.
    *("device", "llm_device", "act_store_device", "prefetch_llm_batches", "autocast"),
    *("compile_llm", "llm_compilation_mode", "compile_sae", "sae_compilation_mode", "verbose"),
    *("streaming", "dataset_trust_remote_code", "sae_lens_version"),
    "sae_lens_training_version",
    "dtype",  # of the SAE: activations are of the model's
    # How the SAEs are trained, evaluated meanwhile, logged and saved.
    *("adam_beta1", "adam_beta2", "lr", "lr_scheduler_name", "lr_warm_up_steps", "lr_end"),
    *("lr_decay_steps", "n_restart_cycles", "dead_feature_window", "feature_sampling_window"),
    *("dead_feature_threshold", "n_batches_for_norm_estimate", "n_eval_batches", "evaluator"),
    *("eval_batch_size_prompts", "logger", "n_checkpoints", "checkpoint_path", "output_path"),
    *("save_final_checkpoint", "resume_from_checkpoint"),
    *("_hook_names_per_sae", "_hook_head_indices_per_sae"),
    # What no release can set, or SAELens does not read.
    *("hook_eval", "is_dataset_tokenized", "use_cached_activations", "cached_activations_path"),
}
SOURCE = {"hub_id": "org/m", "name": None, "revision": "v1", "hook_name": "blocks.1.hook_z"}
SOURCE |= {"dataset": "org/d", "split": "train[:9%]", "subset": None, "column": "body"}
SOURCE |= {"context_size": 64}
RUNNER = {"hook_head_indices": 3, "use_chat_formatting": True, "autocast_lm": True, "lr": 1e-3}
RUNNER |= {"max_activation_norm_multiple": 10, "seqpos_slice": [2, None]}
RUNNER |= {"exclude_special_tokens": [0, 1], "sequence_separator_token": None}
RUNNER |= {"model_from_pretrained_kwargs": {"dtype": "bfloat16"}}


@pytest.mark.parametrize("runner", RUNNERS)
def test_every_field_of_sae_lenss_runner_is_read_or_known_to_have_no_effect(
    runner: type,
) -> None:
    names = {OTHER_NAMES.get(field.name, field.name) for field in fields(runner)}
    assert names <= {*Reading.model_fields, *WITHOUT_EFFECT}
    assert not {*Reading.model_fields} & WITHOUT_EFFECT


def test_the_lists_have_no_field_that_sae_lens_has_not() -> None:
    names = {
        OTHER_NAMES.get(field.name, field.name) for each in RUNNERS for field in fields(each)
    }
    assert names >= WITHOUT_EFFECT
    ours = {"max_activation_norm_multiple", "dataset_split", "dataset_subset", "dataset_column"}
    ours |= {"model_hub_id"}
    assert {*Reading.model_fields} - names == ours


def test_defaults_are_those_of_sae_lenss_runner_but_for_special_tokens() -> None:
    for field in fields(MultiSAETrainingRunnerConfig):
        if field.name in Reading().runner().keys() - {"model_from_pretrained_kwargs"}:
            usual = (
                field.default_factory() if callable(field.default_factory) else field.default
            )
            said = metadata_of({"source": {}, "runner": {}})[field.name]
            assert (field.name, said) == (field.name, usual)


def test_a_plan_and_the_sae_that_it_trained_have_one_reading() -> None:
    settings = {"source": SOURCE, "runner": RUNNER}
    planned = Reading.of_settings(settings)
    said = SAEMetadata(model_name="org/m", hook_name="blocks.1.hook_z", seqpos_slice=(2, None))
    complete(said, settings)
    assert Reading.of(said) == planned
    assert Reading.of(said).unsaid == {}
    assert planned.way == Reading.of(said).way
    again = {"source": SOURCE, "runner": planned.runner()}
    assert Reading.of_settings(again) == planned
    assert planned.model_from_pretrained_kwargs == {"dtype": "bfloat16", "revision": "v1"}
    assert planned.text == TextSource("org/d", split="train[:9%]", column="body")


def test_what_an_sae_says_counts_more_than_the_record_of_its_training() -> None:
    said = SAEMetadata(sequence_separator_token="eos", prepend_bos=False, context_size=None)
    complete(said, {"source": SOURCE, "runner": {**RUNNER, "prepend_bos": True}})
    assert (said.sequence_separator_token, said.prepend_bos, said.context_size) == (
        "eos",
        False,
        64,
    )


@pytest.mark.parametrize(
    "key", sorted({*Reading.model_fields} - {"model_from_pretrained_kwargs"})
)
def test_readings_that_differ_in_any_field_differ(key: str) -> None:
    others = {"model_kwargs": {"a": 1}, "seqpos_slice": (1, 2), "exclude_special_tokens": False}
    default = Reading.model_fields[key].default
    value = others.get(key, not default if isinstance(default, bool) else 7)
    if Reading.model_fields[key].annotation in (str, str | None):
        value = "another"
    changed = Reading.of({key: value})
    assert changed != Reading()
    assert (changed.way != Reading().way) == (
        key not in {"dataset_path", *(each for each in ADDED if "dataset" in each)}
        and key != "store_batch_size_prompts"
    )


def test_passes_count_where_norms_are_left_out() -> None:
    norms = {"max_activation_norm_multiple": 4}
    ways = {Reading.of({**norms, "store_batch_size_prompts": n}).way for n in (8, 16)}
    assert len(ways) == 2


def test_of_its_own_text_alone_an_sae_has_a_part() -> None:
    own = Reading.of({"dataset_path": "d", "dataset_split": "test", "dataset_column": "body"})
    asked = TextSource("d", split="train")
    assert own.text_as_trained(asked) == TextSource("d", split="train", column="body")
    assert own.text_as_trained(TextSource("e")) == TextSource("e")


def test_a_text_is_its_own_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "d.jsonl"
    path.touch()
    own = Reading.of({"dataset_path": "d.jsonl", "dataset_column": "body"})
    for name in ("./d.jsonl", str(path)):
        assert own.text_as_trained(TextSource(name)).column == "body"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("context_size", value) for value in ("32", 0, 32.5, True)),
        *(("model_name", 5), ("model_class_name", []), ("hook_name", {})),
        *(("exclude_special_tokens", "yes"), ("exclude_special_tokens", ["a"])),
        *(("seqpos_slice", "0:5"), ("prepend_bos", "no"), ("hook_head_index", "3")),
        ("max_activation_norm_multiple", "10"),
    ],
)
def test_metadata_of_a_wrong_type_are_named_with_what_was_found(key: str, value: Any) -> None:
    with pytest.raises(UserError) as caught:
        Reading.of({key: value})
    assert (caught.value.field, caught.value.found) == (f"metadata.{key}", repr(value))
