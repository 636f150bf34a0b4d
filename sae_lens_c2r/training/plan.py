"""The plan of a release's training: SAELens's configs, every field of which it has accepted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from datasets import IterableDataset
from sae_lens import (
    MultiSAETrainingRunnerConfig,
    SAETrainer,
    StandardTrainingSAE,
    StandardTrainingSAEConfig,
)
from sae_lens.config import LoggingConfig
from sae_lens.registry import get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.synthetic import SyntheticModelConfig, SyntheticSAERunnerConfig

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED, harmless_runner
from sae_lens_c2r.models.loading import official_name
from sae_lens_c2r.models.offline import MINILM, is_model, where_model_is
from sae_lens_c2r.models.reading import TRANSFORMER_LENS
from sae_lens_c2r.models.text_source import OFFLINE_DATASET
from sae_lens_c2r.penalties.neighbors import has_fast_bfloat16
from sae_lens_c2r.releases import configs
from sae_lens_c2r.releases.model import LanguageModel, Release, SyntheticModel
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.start_from import ESTIMATED

RunnerConfig = MultiSAETrainingRunnerConfig | SyntheticSAERunnerConfig[Any]
_RUNNERS = {
    LanguageModel: MultiSAETrainingRunnerConfig,
    SyntheticModel: SyntheticSAERunnerConfig,
}
_NO_AUX_LOSS = {"layer_norm", "constant_norm_rescale"}  # for dead latents, in SAELens
_WITHOUT_EFFECT = (  # on what is trained
    *("logger", "prefetch_llm_batches", "n_eval_batches", "eval_batch_size_prompts"),
    *("eval_frequency", "llm_device", "act_store_device", "dataset_trust_remote_code"),
    "dead_feature_threshold",
)


@dataclass(frozen=True)
class Plan:
    """A release whose every field SAELens has accepted."""

    release: Release
    saes: Mapping[str, TrainingSAEConfig]  # by the ids of the SAEs, as are those below
    seeds: Mapping[str, int]  # what torch is seeded with before each SAE is made
    runner: Mapping[str, Any]  # fields of SAELens's runner config
    device: str
    matmul_precision: str | None = None  # torch's default, or its name of another
    starts: Mapping[str, SAERef] = field(default_factory=dict)
    start_notes: Sequence[str] = ()  # a line each
    k_anneal_steps: Mapping[str, int] = field(default_factory=dict)
    norm_multiple: float | None = None  # of the median norm, above which tokens are left out
    text: IterableDataset | None = None  # in place of what the release names

    def runner_value(self, name: str) -> Any:
        """A field of SAELens's runner config: the release's, or else SAELens's default."""
        return self.runner.get(name, getattr(_RUNNERS[type(self.release.source)], name))

    @property
    def batch_size(self) -> int:
        """Samples of a training step."""
        of_model = isinstance(self.release.source, LanguageModel)
        return int(self.runner_value("train_batch_size_tokens" if of_model else "batch_size"))

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

    @property
    def fast_bfloat16(self) -> bool:
        """Whether bfloat16 is known to be faster than float32 on the plan's device."""
        return has_fast_bfloat16(torch.device(self.device))

    @property
    def autocast_in_vain(self) -> list[str]:
        """Fields of the runner that ask for bfloat16 where it is not faster."""
        asked = [name for name in self.runner if name.startswith("autocast")]
        return [] if self.fast_bfloat16 else [name for name in asked if self.runner[name]]

    @property
    def from_disk(self) -> list[str]:
        """The names of the model and of the text, if they are read from this machine's disk."""
        source, found = self.release.source, list[str]()
        if isinstance(source, LanguageModel):
            name = source.model
            found += [name] if where_model_is(name) == name and is_model(name) else []
            found += [source.dataset] if source.text.path else []
        return found

    @property
    def text_path(self) -> Path | None:
        """The file or folder of a text on this machine."""
        source = self.release.source
        return None if isinstance(source, SyntheticModel) else source.text.path

    def fingerprint(self) -> dict[str, Any]:
        """The settings that decide what is trained, and the defaults of others, as JSON."""
        saes = {}
        for sae_id, config in self.saes.items():
            saes[sae_id] = {**config.to_dict(), "seed": self.seeds[sae_id]}
            del saes[sae_id]["device"]  # where it runs
            del saes[sae_id]["metadata"]  # what the run adds
            if sae_id in self.starts:  # by its content, wherever it lies by now
                saes[sae_id]["init"] = self.starts[sae_id].sha256
            if sae_id in self.k_anneal_steps:
                saes[sae_id][configs.K_ANNEAL_STEPS] = self.k_anneal_steps[sae_id]
        runner = {k: v for k, v in self.runner.items() if k not in _WITHOUT_EFFECT}
        ours = {
            configs.MATMUL_PRECISION: self.matmul_precision,
            configs.NORM_MULTIPLE: self.norm_multiple,
        }
        runner |= {name: value for name, value in ours.items() if value is not None}
        source = self.release.source.model_dump(mode="json")
        settings = {"source": source, "runner": runner, "saes": saes}
        settings["defaults"] = self._defaults()
        text = json.dumps(settings, default=lambda config: config.to_dict())
        return dict(json.loads(text))

    def _defaults(self) -> dict[str, Any]:
        """The defaults of what decides what is trained: another version may have others."""
        source, ours = self.release.source, (configs.MATMUL_PRECISION, configs.NORM_MULTIPLE)
        runner = configs.defaults_of(_RUNNERS[type(source)]) | dict.fromkeys(ours)
        of_source = type(source).model_fields.items()
        synthetic = isinstance(source, SyntheticModel)
        beside = dict.fromkeys(("init", configs.K_ANNEAL_STEPS))
        return {
            "source": {name: of.default for name, of in of_source if not of.is_required()},
            "source.config": configs.defaults_of(SyntheticModelConfig) if synthetic else {},
            "runner": {key: runner[key] for key in runner.keys() - set(_WITHOUT_EFFECT)},
            **{
                f"sae.{each.architecture()}": configs.defaults_of(type(each)) | beside
                for each in self.saes.values()
            },
        }


def make_plan(release: Release, *, device: str, only: Sequence[str] = ()) -> Plan:
    """Ask SAELens whether it can train a release."""
    specs = {spec.sae_id: spec for spec in release.saes()}
    if unknown := sorted(set(only) - specs.keys()):
        raise UserError("only", f"be ids of the release: {', '.join(specs)}", repr(unknown[0]))
    configs.check_shared(release, list(specs.values()))
    chosen = {sae_id: specs[sae_id] for sae_id in only or specs}
    runner = configs.checked_fields("runner", release.runner, _RUNNERS[type(release.source)])
    runner = runner if TRUSTED.get() else harmless_runner(runner, "The release")
    saes: dict[str, TrainingSAEConfig] = {}
    starts: dict[str, SAERef] = {}
    start_notes: list[str] = []
    for sae_id, spec in chosen.items():
        if spec.fields.get("init") is None:
            saes[sae_id] = configs.sae_config(spec, device)
        else:
            starts[sae_id], saes[sae_id], own_notes = configs.find_start(spec, release, device)
            start_notes += own_notes
    plan = Plan(
        release,
        saes=saes,
        seeds={sae_id: spec.fields.get("seed", 0) for sae_id, spec in chosen.items()},
        matmul_precision=runner.pop(configs.MATMUL_PRECISION, None),
        norm_multiple=runner.pop(configs.NORM_MULTIPLE, None),
        runner=runner,
        device=device,
        starts=starts,
        start_notes=start_notes,
        k_anneal_steps={
            sae_id: spec.fields[configs.K_ANNEAL_STEPS]
            for sae_id, spec in chosen.items()
            if hasattr(saes[sae_id], "k") and spec.fields.get(configs.K_ANNEAL_STEPS)
        },
    )
    _check_source(plan)
    for sae_id in plan.saes:  # made once, for SAELens to check the values
        config = runner_config(plan, sae_ids=[sae_id])
    _check_steps(plan, config)
    return plan


def runner_config(plan: Plan, *, sae_ids: list[str]) -> RunnerConfig:
    """SAELens's config of the runner that trains some SAEs of a plan."""
    source = plan.release.source
    logger = replace(plan.runner.get("logger", LoggingConfig(log_to_wandb=False)))
    common: dict[str, Any] = {**plan.runner, "device": plan.device, "logger": logger}
    common |= {"output_path": None, "checkpoint_path": None}
    common |= dict.fromkeys(plan.autocast_in_vain, False)
    try:
        if isinstance(source, SyntheticModel):
            logger.run_name = logger.run_name or plan.release.name
            return SyntheticSAERunnerConfig(
                synthetic_model=configs.synthetic_model_config(source.config),
                sae=plan.saes[sae_ids[0]],
                training_samples=source.training_samples,
                **common,
            )
        common[f"dataset_{TRUST}"] = TRUSTED.get()  # SAELens trusts all
        config = MultiSAETrainingRunnerConfig(
            saes={sae_id: plan.saes[sae_id] for sae_id in sae_ids},
            hook_names=source.hook_name,
            model_name=source.model,
            dataset_path=source.dataset,
            context_size=source.context_size,
            training_tokens=source.training_tokens,
            **common,
        )
    except (ArithmeticError, TypeError, ValueError, KeyError) as error:
        raise UserError(f"SAELens refuses the runner's fields. {error}") from None
    options = {"revision": source.revision, TRUST: TRUSTED.get()}
    assert config.model_from_pretrained_kwargs is not None  # but what SAELens puts there
    options = {key: each for key, each in options.items() if each}
    config.model_from_pretrained_kwargs = {**config.model_from_pretrained_kwargs, **options}
    return config


def _check_source(plan: Plan) -> None:
    """Raise a `UserError` unless the SAEs can be trained together on what they encode."""
    source = plan.release.source
    if isinstance(source, SyntheticModel):
        features = configs.synthetic_model_config(source.config)
        if features.seed is None:
            should = "be an integer, such as 42, or each process would draw other features"
            raise UserError("synthetic_model.config.seed", should, "none")
        for sae_id, config in plan.saes.items():
            if config.d_in != features.hidden_dim:
                should = f"be the `hidden_dim` of the known features, {features.hidden_dim}"
                raise UserError("sae.d_in", should, f"{config.d_in} in {sae_id}")
        return
    name = source.model
    in_rows = source.dataset == OFFLINE_DATASET and source.hub_id == MINILM.hub_id
    if in_rows and source.context_size > MINILM.context_size:
        should = f"be at most {MINILM.context_size:,}, the tokens in a row of {source.dataset}"
        raise UserError("language_model.context_size", should, f"{source.context_size:,}")
    if plan.runner_value("model_class_name") == TRANSFORMER_LENS and not official_name(name):
        short = name.rpartition("/")[2]
        advice = f"Write `name: {short}` below it."
        if not official_name(short):
            advice = (
                "Or load it by `transformers`: set `model_class_name: AutoModelForCausalLM` "
                "under `runner`, and give a module as `hook_name`."
            )
        field = f"language_model.{'name' if source.name else 'hub_id'}"
        raise UserError(field, "be a model that TransformerLens has", name, advice)


def _check_steps(plan: Plan, config: RunnerConfig) -> None:
    """Raise a `UserError` unless the steps can be taken: batches, schedules, optimizer."""
    if isinstance(config, MultiSAETrainingRunnerConfig):
        positions = list(config.seqpos_slice)
        try:
            kept = range(config.context_size)[slice(*positions)]
        except (TypeError, ValueError):
            kept = range(0)
        if not kept or kept.step < 1:
            should = (
                "be `[start, end]` or `[start, end, step]`, and keep some of a row's "
                f"{config.context_size:,} tokens"
            )
            raise UserError("runner.seqpos_slice", should, positions)
    for sae_id, each in plan.saes.items():
        ends = {name: getattr(each, name, 0) for name in ("c2r_start_step", "ort_start_step")}
        ends[configs.K_ANNEAL_STEPS] = plan.k_anneal_steps.get(sae_id, 0)
        for name, step in ends.items():
            if step >= max(plan.steps, 1):
                should = f"be below the steps of the training, {plan.steps:,}"
                raise UserError(f"sae.{name}", should, f"{step:,} in {sae_id}")
        sae_class, _ = get_sae_training_class(each.architecture())
        may_die = plan.steps > config.dead_feature_window
        needs_loss = may_die and hasattr(sae_class, "calculate_topk_aux_loss")
        if needs_loss and each.normalize_activations in _NO_AUX_LOSS:
            should = (
                f"be none or {ESTIMATED} for {sae_id}: SAELens stops with an error once a "
                "latent is dead"
            )
            raise UserError("sae.normalize_activations", should, each.normalize_activations)
    theirs = config.to_sae_trainer_config()
    warm_up, decay = theirs.lr_warm_up_steps, theirs.lr_decay_steps
    if warm_up + decay > theirs.total_training_steps:
        name = f"runner.lr_{'warm_up' if warm_up else 'decay'}_steps"
        most = f"{theirs.total_training_steps:,}, the whole batches that were asked for"
        found = " and ".join(f"{each:,}" for each in (warm_up, decay) if each)
        raise UserError(name, f"be, with all schedules of `lr`, at most {most}", found)
    try:
        SAETrainer(theirs, StandardTrainingSAE(StandardTrainingSAEConfig(1, 1)), iter(()))
    except (ArithmeticError, AssertionError, TypeError, ValueError) as error:
        raise UserError(
            f"SAELens cannot make an optimizer from the runner's fields. {one_line(error)}"
        ) from None
