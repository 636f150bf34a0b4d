"""The plan of a release's training: SAELens's configs, every field of which it has accepted."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sae_lens import MultiSAETrainingRunnerConfig
from sae_lens.config import LoggingConfig
from sae_lens.registry import get_sae_training_class
from sae_lens.saes.sae import TrainingSAEConfig

from sae_lens_c2r._support.errors import UserError, first_sentence, is_of_network
from sae_lens_c2r._support.remote_code import TRUST, TRUSTED, harmless_runner
from sae_lens_c2r.models.loading import residual_width
from sae_lens_c2r.models.names import ModelName
from sae_lens_c2r.models.text import read_text, rows_for
from sae_lens_c2r.models.text_source import OFFLINE_DATASET
from sae_lens_c2r.releases import configs
from sae_lens_c2r.releases.model import Release
from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.saes.start_from import ESTIMATED, NEEDS_ESTIMATE

_NO_AUX_LOSS = {"layer_norm", "constant_norm_rescale"}  # for dead latents, in SAELens
_WITHOUT_EFFECT = {  # on what is trained, or said elsewhere in the settings
    *("logger", "prefetch_llm_batches", "n_eval_batches", "eval_batch_size_prompts"),
    *("eval_frequency", "llm_device", "act_store_device", "dataset_trust_remote_code"),
    *("dead_feature_threshold", "sae_lens_version", "sae_lens_training_version"),
    *configs.NOT_SET,
}


@dataclass(frozen=True)
class Plan:
    """A release whose every field SAELens has accepted."""

    release: Release
    saes: Mapping[str, TrainingSAEConfig]  # by the ids of the SAEs, as are those below
    seeds: Mapping[str, int]  # what torch is seeded with before each SAE is made
    runner: Mapping[str, Any]  # fields of SAELens's runner config
    device: str
    starts: Mapping[str, SAERef] = field(default_factory=dict)
    start_notes: Sequence[str] = ()  # a line each
    k_anneal_steps: Mapping[str, int] = field(default_factory=dict)
    norm_multiple: float | None = None  # of the median norm, above which tokens are left out

    def runner_value(self, name: str) -> Any:
        """A field of SAELens's runner config: the release's, or else SAELens's default."""
        return self.runner.get(name, getattr(MultiSAETrainingRunnerConfig, name))

    @property
    def batch_size(self) -> int:
        """Tokens of a training step."""
        return int(self.runner_value("train_batch_size_tokens"))

    @property
    def steps(self) -> int:
        """Training steps of each SAE: SAELens's last one may go beyond what was asked for."""
        # In whole numbers, however large they are.
        return -(-self.release.language_model.training_tokens // self.batch_size)

    @property
    def samples(self) -> int:
        """Training samples of each SAE, which are tokens."""
        return self.steps * self.batch_size

    @property
    def from_disk(self) -> list[str]:
        """The names of the model and of the text, if they are read from this machine's disk."""
        source = self.release.language_model
        name = ModelName(source.model)
        found = [name.given] if name.place() == name.given and name.is_folder else []
        return found + ([source.dataset] if source.text.path else [])

    def settings(self) -> dict[str, Any]:
        """All that decides what is trained, with SAELens's defaults, as JSON."""
        saes = {}
        for sae_id, config in self.saes.items():
            start = self.starts.get(sae_id)
            saes[sae_id] = {
                **config.to_dict(),
                "seed": self.seeds[sae_id],
                "init": start and start.sha256,  # by its content, wherever it lies by now
                configs.K_ANNEAL_STEPS: self.k_anneal_steps.get(sae_id, 0),
            }
            del saes[sae_id]["device"]  # where it runs
            del saes[sae_id]["metadata"]  # what the run adds
        runner = _sae_lens_config(self, list(self.saes)).to_dict()
        runner = {key: value for key, value in runner.items() if key not in _WITHOUT_EFFECT}
        runner[configs.NORM_MULTIPLE] = self.norm_multiple
        source = self.release.language_model.model_dump(mode="json")
        return dict(json.loads(json.dumps({"source": source, "runner": runner, "saes": saes})))


def make_plan(release: Release, *, device: str, only: Sequence[str] = ()) -> Plan:
    """Ask SAELens whether it can train a release."""
    specs = {spec.sae_id: spec for spec in release.saes()}
    if unknown := sorted(set(only) - specs.keys()):
        raise UserError("only", f"be ids of the release: {', '.join(specs)}", repr(unknown[0]))
    configs.check_shared(release, list(specs.values()))
    chosen = {sae_id: specs[sae_id] for sae_id in only or specs}
    runner = configs.checked_fields("runner", release.runner, MultiSAETrainingRunnerConfig)
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
        _with_whole_paths(release),
        saes=saes,
        seeds={sae_id: spec.fields.get("seed", 0) for sae_id, spec in chosen.items()},
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
    _check_together(plan, runner_config(plan, sae_ids=list(plan.saes)))
    return plan


def _with_whole_paths(release: Release) -> Release:
    """A release whose model and text are the same wherever a later command is run."""
    source = release.language_model
    name, whole = ModelName(source.name or ""), {}
    if source.text.path:
        whole["dataset"] = str(source.text.path.absolute())
    # A name that TransformerLens has it loads from the Hub, whatever folder is here.
    if source.name and name.is_folder and name.in_transformer_lens is None:
        whole["name"] = str(Path(source.name).absolute())
    changed = source.model_copy(update=whole)
    return release.model_copy(update={"language_model": changed})


def runner_config(plan: Plan, *, sae_ids: list[str]) -> MultiSAETrainingRunnerConfig:
    """SAELens's config of the runner that trains some SAEs of a plan."""
    config = _sae_lens_config(plan, sae_ids)
    options = {"revision": plan.release.language_model.revision, TRUST: TRUSTED.get()}
    options = {key: each for key, each in options.items() if each}
    # None is replaced by SAELens.
    config.model_from_pretrained_kwargs = {
        **(config.model_from_pretrained_kwargs or {}),
        **options,
    }
    return config


def _sae_lens_config(plan: Plan, sae_ids: list[str]) -> MultiSAETrainingRunnerConfig:
    """Return the release as SAELens's config; raise a UserError if SAELens refuses it."""
    source = plan.release.language_model
    options: dict[str, Any] = {
        **plan.runner,
        "device": plan.device,
        "logger": replace(plan.runner.get("logger", LoggingConfig(log_to_wandb=False))),
        "output_path": None,
        "checkpoint_path": None,
        f"dataset_{TRUST}": TRUSTED.get(),  # SAELens trusts all
    }
    try:
        return MultiSAETrainingRunnerConfig(
            saes={sae_id: plan.saes[sae_id] for sae_id in sae_ids},
            hook_names=source.hook_name,
            model_name=source.model,
            dataset_path=source.dataset,
            context_size=source.context_size,
            training_tokens=source.training_tokens,
            **options,
        )
    except (ArithmeticError, TypeError, ValueError, KeyError) as error:
        raise UserError(f"SAELens refuses the runner's fields. {error}") from None


def _check_together(plan: Plan, config: MultiSAETrainingRunnerConfig) -> None:
    """Raise for what would fail late in the training, or train something else in silence."""
    modes = {each.normalize_activations for each in plan.saes.values()}
    if modes & NEEDS_ESTIMATE and modes - NEEDS_ESTIMATE:
        # SAELens takes the batches that it estimates from out of the stream that all share.
        should = f"be {' or '.join(sorted(NEEDS_ESTIMATE))} for all SAEs or for none"
        advice = "Or train the SAEs of each kind by `--only`."
        raise UserError("sae.normalize_activations", should, ", ".join(sorted(modes)), advice)
    for sae_id, each in plan.saes.items():
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
    both, most = theirs.lr_warm_up_steps + theirs.lr_decay_steps, theirs.total_training_steps
    if both > most:  # SAELens would have them overlap
        raise UserError("lr_warm_up_steps + lr_decay_steps", f"be at most {most}", str(both))


def check_inputs(plan: Plan, log: Callable[[str], None]) -> None:
    """Raise unless `d_in` is the model's width and the text has a first row, if reachable."""
    source = plan.release.language_model
    with _if_reached(f"The model {source.model}", log):
        loader = plan.runner_value("model_class_name")
        width = residual_width(source.model, source.hook_name, loader, source.revision)
        for sae_id, config in plan.saes.items():
            if width not in (None, config.d_in):
                should = f"be {width}, the width of {source.hook_name} in {source.model}"
                raise UserError("sae.d_in", should, f"{config.d_in} in {sae_id}")
    if source.dataset != OFFLINE_DATASET:
        with _if_reached(f"The text {source.dataset}", log):
            # Only the first rows are read, also of what the training does not stream.
            text = read_text(source.text)
            rows_for(text, source.hub_id or source.name, source.context_size)


@contextmanager
def _if_reached(what: str, log: Callable[[str], None]) -> Iterator[None]:
    """Do what needs the Hub, or tell that it was not reached."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:  # of transformers and datasets
        if not is_of_network(error):
            raise
        log(f"Not checked: {what}. {first_sentence(error)}")
