"""What training a release will do: SAELens's configs, and what they will cost."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from sae_lens import MultiSAETrainingRunnerConfig
from sae_lens.config import LoggingConfig
from sae_lens.registry import SAE_TRAINING_CLASS_REGISTRY, get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.synthetic import SyntheticModelConfig, SyntheticSAERunnerConfig

from sae_lens_c2r.release import LanguageModel, Release, ReleaseError, SAESpec, SyntheticModel

OURS = {  # fields of SAELens's runner configs that a release cannot set
    *("saes", "sae", "hook_names", "device", "output_path", "save_synthetic_model"),
    *("n_checkpoints", "checkpoint_path", "save_final_checkpoint", "resume_from_checkpoint"),
}


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
    def samples(self) -> int:
        """Training samples of each SAE: tokens, where they come from a language model."""
        source = self.release.source
        if isinstance(source, LanguageModel):
            return source.training_tokens
        return source.training_samples

    @property
    def steps(self) -> int:
        """Training steps of each SAE."""
        return self.samples // self.batch_size

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
            value; or if one of `only` is not in the release.
    """
    specs = {spec.sae_id: spec for spec in release.saes()}
    if unknown := sorted(set(only) - specs.keys()):
        raise ReleaseError(
            f"`only` should be ids of the release: {', '.join(specs)}. Found {unknown[0]!r}."
        )
    chosen = [specs[sae_id] for sae_id in only] or list(specs.values())
    configs = {spec.sae_id: _sae_config(spec, device) for spec in chosen}
    synthetic = isinstance(release.source, SyntheticModel)
    runner_class = SyntheticSAERunnerConfig if synthetic else MultiSAETrainingRunnerConfig
    _check_fields("runner", release.runner, runner_class, taken=OURS)
    _check_fields("runner.logger", release.runner.get("logger", {}), LoggingConfig, taken=set())
    defaults = {field.name: field.default for field in fields(runner_class)}
    batch_field = "batch_size" if synthetic else "train_batch_size_tokens"
    plan = Plan(
        release,
        saes=configs,
        seeds={spec.sae_id: spec.fields.get("seed", 0) for spec in chosen},
        runner=dict(release.runner),
        batch_size=release.runner.get(batch_field, defaults[batch_field]),
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
        "logger": LoggingConfig(**plan.runner.get("logger", {"log_to_wandb": False})),
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
    _check_fields("synthetic_model.config", values, SyntheticModelConfig, taken=set())
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
    _check_fields("sae", values, config_class, taken={"device", "metadata"})
    try:
        return config_class(**values, device=device)
    except (TypeError, ValueError) as error:
        raise ReleaseError(f"SAELens refuses {spec.sae_id}. {error}") from None


def _check_fields(key: str, values: dict[str, Any], config: type, *, taken: set[str]) -> None:
    known = {field.name for field in fields(config) if field.init} - taken
    for name in values:
        if name not in known:
            raise ReleaseError(
                f"`{key}.{name}` should be a field of SAELens's {config.__name__}: "
                f"{', '.join(sorted(known))}."
            )
