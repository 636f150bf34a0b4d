"""What training a release will do: SAELens's configs, and what they will cost."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, get_type_hints

import torch
from pydantic import TypeAdapter, ValidationError
from sae_lens import MultiSAETrainingRunnerConfig
from sae_lens.config import LoggingConfig
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.synthetic import SyntheticModelConfig, SyntheticSAERunnerConfig
from sae_lens.util import str_to_dtype

from sae_lens_c2r.offline.source import OFFLINE_DATASET, OFFLINE_MODEL
from sae_lens_c2r.releases.model import (
    LanguageModel,
    Release,
    ReleaseError,
    SAESpec,
    SyntheticModel,
)

OURS = {  # fields of SAELens's runner configs that a release cannot set, or sets elsewhere
    *("saes", "sae", "hook_names", "model_name", "dataset_path", "context_size"),
    *("training_tokens", "training_samples", "synthetic_model", "device", "evaluator"),
    *("output_path", "save_synthetic_model", "checkpoint_path", "n_checkpoints"),
    *("save_final_checkpoint", "resume_from_checkpoint"),
}
NEEDS_ESTIMATE = {"expected_average_only_in", "covariance_whitening"}


@dataclass(frozen=True)
class Plan:
    """A release whose every field SAELens has accepted.

    Args:
        release: The release.
        saes: SAELens's config of every SAE, by its id.
        seeds: What torch is seeded with before each SAE is made.
        runner: Fields of SAELens's runner config.
        batch_size: Samples of a training step.
        device: Where they are trained.
    """

    release: Release
    saes: Mapping[str, TrainingSAEConfig]
    seeds: Mapping[str, int]
    runner: Mapping[str, Any]
    batch_size: int
    device: str

    @property
    def steps(self) -> int:
        """Training steps of each SAE: SAELens's last one may go beyond what was asked for."""
        source = self.release.source
        if isinstance(source, LanguageModel):
            return math.ceil(source.training_tokens / self.batch_size)
        return math.ceil(source.training_samples / self.batch_size)

    @property
    def samples(self) -> int:
        """Training samples of each SAE: tokens, where they come from a language model."""
        return self.steps * self.batch_size

    @property
    def disk_bytes(self) -> int:
        """What the trained SAEs will take."""
        return sum(weight_bytes(config) for config in self.saes.values())

    @property
    def checkpoint_bytes(self) -> int:
        """What a checkpoint takes: weights, Adam's moments, latents' counters, the buffer."""
        each = [3 * weight_bytes(config) + 8 * config.d_sae for config in self.saes.values()]
        if isinstance(self.release.source, SyntheticModel):
            return max(each)
        return sum(each) + self._buffer_bytes

    @property
    def memory_bytes(self) -> int:
        """What training takes beside the model: about, and at most where SAEs are in turn.

        Weights, gradients and Adam's two moments of all SAEs that are trained together, and
        the activations of one step, three times: before, after and in the backward pass.
        """
        together = list(self.saes.values())
        states = [4 * weight_bytes(config) for config in together]
        acts = [3 * 4 * self.batch_size * config.d_sae for config in together]
        if isinstance(self.release.source, SyntheticModel):
            return max(state + act for state, act in zip(states, acts, strict=True))
        return sum(states) + max(acts) + self._buffer_bytes

    @property
    def _buffer_bytes(self) -> int:
        """SAELens's mixing buffer of activations."""
        source = self.release.source
        assert isinstance(source, LanguageModel)
        defaults = {field.name: field.default for field in fields(MultiSAETrainingRunnerConfig)}
        rows, batches = (
            self.runner.get(name, defaults[name])
            for name in ("store_batch_size_prompts", "n_batches_in_buffer")
        )
        d_in = next(iter(self.saes.values())).d_in
        return rows * batches * source.context_size * d_in * 4


def weight_bytes(config: TrainingSAEConfig) -> int:
    """Size of an SAE's weights: an encoder, a decoder and their biases."""
    itemsize = torch.empty(0, dtype=getattr(torch, config.dtype)).itemsize
    return itemsize * (2 * config.d_in * config.d_sae + config.d_in + config.d_sae)


def make_plan(release: Release, *, device: str, only: tuple[str, ...] = ()) -> Plan:
    """Ask SAELens whether it can train a release.

    Args:
        release: The release.
        device: Where it will be trained.
        only: Ids of the SAEs to train; empty for all.

    Returns:
        The plan.

    Raises:
        ReleaseError: If SAELens does not know a field or an architecture, or refuses a
            value; if the SAEs cannot be trained together, or on this text; if torch does not
            have the device; or if one of `only` is not in the release.
    """
    _check_device(device)
    specs = {spec.sae_id: spec for spec in release.saes()}
    if unknown := sorted(set(only) - specs.keys()):
        raise ReleaseError(
            f"`only` should be ids of the release: {', '.join(specs)}. Found {unknown[0]!r}."
        )
    chosen = [specs[sae_id] for sae_id in only] or list(specs.values())
    configs = {spec.sae_id: _sae_config(spec, device) for spec in chosen}
    source = release.source
    synthetic = isinstance(source, SyntheticModel)
    runner_class = SyntheticSAERunnerConfig if synthetic else MultiSAETrainingRunnerConfig
    runner = _checked("runner", release.runner, runner_class, taken=OURS)
    defaults = {field.name: field.default for field in fields(runner_class)}
    batch_field = "batch_size" if synthetic else "train_batch_size_tokens"
    batch_size = runner.get(batch_field, defaults[batch_field])
    if batch_size < 1:
        raise ReleaseError(f"`runner.{batch_field}` should be at least 1. Found {batch_size}.")
    if isinstance(source, LanguageModel):
        _check_language_model(source, configs)
    plan = Plan(
        release,
        saes=configs,
        seeds={spec.sae_id: _seed(spec) for spec in chosen},
        runner=runner,
        batch_size=batch_size,
        device=device,
    )
    for sae_id in configs:  # made once, for SAELens to check the values
        runner_config(plan, sae_ids=[sae_id])
    return plan


def runner_config(
    plan: Plan, *, sae_ids: list[str]
) -> MultiSAETrainingRunnerConfig | SyntheticSAERunnerConfig[Any]:
    """SAELens's config of the runner that trains some SAEs of a plan.

    Args:
        plan: The plan.
        sae_ids: The SAEs: one, where the features are synthetic.

    Returns:
        The config, which saves nothing by itself, and logs what the release says.

    Raises:
        ReleaseError: If SAELens refuses a value.
    """
    source = plan.release.source
    common: dict[str, Any] = {
        **plan.runner,
        "device": plan.device,
        "logger": replace(plan.runner.get("logger", LoggingConfig(log_to_wandb=False))),
        "output_path": None,
        "checkpoint_path": None,
    }
    try:
        if isinstance(source, SyntheticModel):
            [sae_id] = sae_ids
            return SyntheticSAERunnerConfig(
                synthetic_model=_synthetic_model(source.config),
                sae=plan.saes[sae_id],
                training_samples=source.training_samples,
                **common,
            )
        config = MultiSAETrainingRunnerConfig(
            saes={sae_id: plan.saes[sae_id] for sae_id in sae_ids},
            hook_names=source.hook_name,
            model_name=source.name or source.hub_id,
            dataset_path=source.dataset,
            context_size=source.context_size,
            training_tokens=source.training_tokens,
            **common,
        )
        if source.revision is not None:  # beside what SAELens puts there
            assert config.model_from_pretrained_kwargs is not None
            config.model_from_pretrained_kwargs["revision"] = source.revision
        return config
    except (TypeError, ValueError, KeyError) as error:
        raise ReleaseError(f"SAELens refuses the runner's fields. {error}") from None


def _synthetic_model(values: dict[str, Any]) -> SyntheticModelConfig:
    values = _checked("synthetic_model.config", values, SyntheticModelConfig, nested=False)
    # SAELens's reader asks for what its config has a default for.
    defaults = SyntheticModelConfig(num_features=1, hidden_dim=1).to_dict()
    return SyntheticModelConfig.from_dict({**defaults, **values})


def _sae_config(spec: SAESpec, device: str) -> TrainingSAEConfig:
    values = {name: value for name, value in spec.fields.items() if name != "seed"}
    architecture = values.pop("architecture", None)
    if architecture not in SAE_TRAINING_CLASS_REGISTRY:
        known = ", ".join(sorted(SAE_TRAINING_CLASS_REGISTRY))
        raise ReleaseError(
            f"`architecture` should be one of {known}. Found {architecture!r} in {spec.sae_id}."
        )
    _, config_class = get_sae_training_class(architecture)
    values = _checked("sae", values, config_class, taken={"device", "metadata"})
    try:
        config = config_class(**values, device=device)
        floating = str_to_dtype(config.dtype).is_floating_point
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"SAELens refuses {spec.sae_id}. {error}") from None
    if not floating:
        raise ReleaseError(f"`sae.dtype` should be a floating type. Found {config.dtype!r}.")
    for name in ("d_in", "d_sae"):
        if getattr(config, name) < 1:
            raise ReleaseError(
                f"`sae.{name}` should be at least 1. Found {getattr(config, name)}."
            )
    k = getattr(config, "k", 1)
    if not 0 < k <= config.d_sae:
        raise ReleaseError(f"`sae.k` should be above 0 and at most `d_sae`. Found {k}.")
    return config


def _seed(spec: SAESpec) -> int:
    seed = spec.fields.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ReleaseError(f"`sae.seed` should be an integer of at least 0. Found {seed!r}.")
    return seed


def _check_device(device: str) -> None:
    should = "`device` should be one that torch has here, such as cpu or cuda."
    try:  # torch has a kind of error for each: unknown, not built in, no kernels
        usable = torch.empty(0, device=device).device.type != "meta"
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ReleaseError(f"{should} Found {device!r}: {reason}") from None
    if not usable:
        raise ReleaseError(f"{should} Found {device!r}.")


def _check_language_model(
    source: LanguageModel, configs: Mapping[str, TrainingSAEConfig]
) -> None:
    """What holds for SAEs that are trained from one pass of a model."""
    modes = {config.normalize_activations for config in configs.values()}
    if modes & NEEDS_ESTIMATE and modes - NEEDS_ESTIMATE:
        raise ReleaseError(
            # SAELens takes the batches that it estimates from out of the shared stream.
            "`sae.normalize_activations` should have SAELens estimate something for all SAEs "
            f"of a language model or for none, or an SAE would depend on those beside it. "
            f"Found {', '.join(sorted(modes))}."
        )
    if source.dataset == OFFLINE_DATASET and (
        source.hub_id != OFFLINE_MODEL or source.name or source.revision
    ):
        raise ReleaseError(
            f"`language_model` should be {OFFLINE_MODEL}, with no name and no revision, where "
            f"`dataset` is {OFFLINE_DATASET}. Found {source.name or source.hub_id}."
        )


def _checked(
    key: str,
    values: dict[str, Any],
    config: type,
    *,
    taken: Collection[str] = (),
    nested: bool = True,
) -> dict[str, Any]:
    """Values as the fields of one of SAELens's configs want them, as they are annotated."""
    known = {field.name for field in fields(config) if field.init} - set(taken)
    hints = get_type_hints(config)
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise ReleaseError(
                f"`{key}.{name}` should be a field of SAELens's {config.__name__}: "
                f"{', '.join(sorted(known))}."
            )
        if not nested and isinstance(value, dict):  # of more than one kind: SAELens reads it
            checked[name] = value
            continue
        if name == "logger" and isinstance(value, dict):
            value = _checked(f"{key}.logger", value, LoggingConfig)
        try:
            valid = TypeAdapter(hints[name]).validate_python(value)
            checked[name] = value if value == valid else valid  # 32 stays 32, and not 32.0
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise ReleaseError(f"`{key}.{name}`: {reason}. Found {value!r}.") from None
    return checked
