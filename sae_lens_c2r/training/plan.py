"""What training a release will do: SAELens's configs, every field of which it has accepted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from datasets import Dataset
from sae_lens import MultiSAETrainingRunnerConfig
from sae_lens.config import LoggingConfig
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.synthetic import SyntheticSAERunnerConfig

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.releases.model import (
    LanguageModel,
    Release,
    ReleaseError,
    SAESpec,
    SyntheticModel,
)
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.configs import (
    check_shared,
    checked_fields,
    sae_config,
    synthetic_model_config,
)
from sae_lens_c2r.training.plan_checks import (
    MATMUL_PRECISION,
    NORM_MULTIPLE,
    anneal_steps,
    check_counts,
    check_device,
    check_dtype,
    check_known_features,
    check_language_model,
    check_loader,
    check_optimizer,
    check_positions,
    checked_multiple,
    checked_precision,
)
from sae_lens_c2r.training.starts import find_start

OURS = {  # fields of SAELens's runner configs that a release cannot set, or sets elsewhere
    *("saes", "sae", "hook_names", "model_name", "dataset_path", "context_size"),
    *("training_tokens", "training_samples", "synthetic_model", "device", "evaluator"),
    *("output_path", "save_synthetic_model", "checkpoint_path", "n_checkpoints"),
    *("save_final_checkpoint", "resume_from_checkpoint"),
}


@dataclass(frozen=True)
class Plan:
    """A release whose every field SAELens has accepted.

    Args:
        release: The release.
        saes: SAELens's config of every SAE, by its id.
        seeds: What torch is seeded with before each SAE is made.
        runner: Fields of SAELens's runner config.
        device: Where they are trained.
        matmul_precision: What `torch.set_float32_matmul_precision` is given; `None` for what
            torch has by default.
        starts: What those of the SAEs start from that start from another.
        notes: What is worth knowing of these, a line each.
        k_anneal_steps: Over how many steps the k of those of the SAEs falls whose k does.
        norm_multiple: Tokens above that many times the median norm are left out; `None` for
            all tokens.
        dataset: Text of a language model in place of what the release names, such as a part
            of it: a column `tokens` of rows as the model reads them.
    """

    release: Release
    saes: Mapping[str, TrainingSAEConfig]
    seeds: Mapping[str, int]
    runner: Mapping[str, Any]
    device: str
    matmul_precision: str | None = None
    starts: Mapping[str, SAERef] = field(default_factory=dict)
    notes: Sequence[str] = ()
    k_anneal_steps: Mapping[str, int] = field(default_factory=dict)
    norm_multiple: float | None = None
    dataset: Dataset | None = None

    def runner_value(self, name: str) -> Any:
        """A field of SAELens's runner config: the release's, or else SAELens's default."""
        config = _runner_class(self.release.source)
        default = next(field.default for field in fields(config) if field.name == name)
        return self.runner.get(name, default)

    @property
    def batch_size(self) -> int:
        """Samples of a training step."""
        return int(self.runner_value(_batch_field(self.release.source)))

    @property
    def steps(self) -> int:
        """Training steps of each SAE: SAELens's last one may go beyond what was asked for."""
        source = self.release.source
        if isinstance(source, LanguageModel):
            n_samples = source.training_tokens
        else:
            n_samples = source.training_samples
        return -(-n_samples // self.batch_size)  # in whole numbers, however large they are

    @property
    def samples(self) -> int:
        """Training samples of each SAE: tokens, where they come from a language model."""
        return self.steps * self.batch_size


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
            value; or if the SAEs cannot be trained together, or on this text.
        UserError: If torch does not have the device, one of `only` is not in the release, or
            an SAE cannot start from what its `init` names.
    """
    check_device(device)
    specs = {spec.sae_id: spec for spec in release.saes()}
    if unknown := sorted(set(only) - specs.keys()):
        raise UserError(
            f"`--only` should be ids of the release: {', '.join(specs)}. Found {unknown[0]!r}."
        )
    chosen = [specs[sae_id] for sae_id in only] or list(specs.values())
    check_shared(release)
    source = release.source
    runner = dict(release.runner)
    precision = checked_precision(runner.pop(MATMUL_PRECISION, None))
    norm_multiple = checked_multiple(runner.pop(NORM_MULTIPLE, None), source)
    saes: dict[str, TrainingSAEConfig] = {}
    starts: dict[str, SAERef] = {}
    notes: list[str] = []
    for spec in chosen:
        if spec.fields.get("init") is None:
            saes[spec.sae_id] = sae_config(spec, device)
        else:
            starts[spec.sae_id], saes[spec.sae_id], own = find_start(spec, release, device)
            notes += own
    plan = Plan(
        release,
        saes=saes,
        seeds={spec.sae_id: _seed(spec) for spec in chosen},
        runner=checked_fields(
            "runner",
            runner,
            _runner_class(source),
            taken=OURS,
            ours=(MATMUL_PRECISION, NORM_MULTIPLE),
        ),
        device=device,
        matmul_precision=precision,
        starts=starts,
        notes=notes,
        norm_multiple=norm_multiple,
    )
    if plan.batch_size < 1:
        raise ReleaseError(
            f"`runner.{_batch_field(source)}` should be at least 1. Found {plan.batch_size}."
        )
    if isinstance(source, LanguageModel):
        check_language_model(source, plan.saes)
        check_loader(source, plan.runner_value("model_class_name"))
    for sae_id in plan.saes:  # made once, for SAELens to check the values
        config = runner_config(plan, sae_ids=[sae_id])
    check_counts(config)
    check_dtype(config)
    check_optimizer(config)
    if isinstance(config, MultiSAETrainingRunnerConfig):
        check_positions(config)
    if isinstance(source, SyntheticModel):
        check_known_features(source)
    annealed = {
        spec.sae_id: anneal_steps(spec, plan.saes[spec.sae_id], plan.steps) for spec in chosen
    }
    return replace(plan, k_anneal_steps={i: steps for i, steps in annealed.items() if steps})


def runner_config(
    plan: Plan, *, sae_ids: list[str]
) -> MultiSAETrainingRunnerConfig | SyntheticSAERunnerConfig[Any]:
    """SAELens's config of the runner that trains some SAEs of a plan.

    Args:
        plan: The plan.
        sae_ids: The SAEs. Where the features are synthetic, SAELens's config has but one.

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
            common["logger"].run_name = common["logger"].run_name or plan.release.name
            return SyntheticSAERunnerConfig(
                synthetic_model=synthetic_model_config(source.config),
                sae=plan.saes[sae_ids[0]],
                training_samples=source.training_samples,
                **common,
            )
        saes = {sae_id: plan.saes[sae_id] for sae_id in sae_ids}
        return _language_model_runner(source, saes=saes, **common)
    except (ArithmeticError, TypeError, ValueError, KeyError) as error:
        raise ReleaseError(f"SAELens refuses the runner's fields. {error}") from None


def _language_model_runner(
    source: LanguageModel, **values: Any
) -> MultiSAETrainingRunnerConfig:
    config = MultiSAETrainingRunnerConfig(
        hook_names=source.hook_name,
        model_name=source.name or source.hub_id,
        dataset_path=source.dataset,
        context_size=source.context_size,
        training_tokens=source.training_tokens,
        **values,
    )
    if source.revision is not None:  # beside what SAELens puts there
        assert config.model_from_pretrained_kwargs is not None
        config.model_from_pretrained_kwargs["revision"] = source.revision
    return config


def _runner_class(source: LanguageModel | SyntheticModel) -> type:
    if isinstance(source, LanguageModel):
        return MultiSAETrainingRunnerConfig
    return SyntheticSAERunnerConfig


def _batch_field(source: LanguageModel | SyntheticModel) -> str:
    return "train_batch_size_tokens" if isinstance(source, LanguageModel) else "batch_size"


def _seed(spec: SAESpec) -> int:
    seed = spec.fields.get("seed", 0)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ReleaseError(f"`sae.seed` should be an integer of at least 0. Found {seed!r}.")
    return seed
