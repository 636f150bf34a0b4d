"""What training would fail by, or not notice, is refused when a plan is made."""

import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import torch
from sae_lens import MultiSAETrainingRunnerConfig
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.synthetic import SyntheticModelConfig, SyntheticSAERunnerConfig
from sae_lens.training.optim import get_lr_scheduler
from sae_lens.util import str_to_dtype

from sae_lens_c2r._support.errors import UserError, one_line
from sae_lens_c2r.offline.corpus import OFFLINE_DATASET
from sae_lens_c2r.offline.minilm import CONTEXT_SIZE, OFFLINE_MODEL
from sae_lens_c2r.releases.language_models import LOADERS, TRANSFORMER_LENS, official_name
from sae_lens_c2r.releases.model import LanguageModel, ReleaseError, SAESpec, SyntheticModel
from sae_lens_c2r.training.configs import K_ANNEAL_STEPS

MATMUL_PRECISION, PRECISIONS = "matmul_precision", ("highest", "high", "medium")
NORM_MULTIPLE = "max_activation_norm_multiple"
NEEDS_ESTIMATE = {"expected_average_only_in", "covariance_whitening"}
RunnerConfig = MultiSAETrainingRunnerConfig | SyntheticSAERunnerConfig[Any]
COUNTS = (
    *("store_batch_size_prompts", "n_batches_in_buffer", "n_batches_for_norm_estimate"),
    "dead_feature_window",
)


def check_device(device: str) -> None:
    """Raise a `UserError` unless torch has a device here."""
    should = "`device` should be one that torch has here, such as cpu or cuda."
    try:  # torch has a kind of error for each: unknown, not built in, no kernels
        usable = torch.empty(0, device=device).device.type != "meta"
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{should} Found {device!r}: {reason}") from None
    if not usable:
        raise UserError(f"{should} Found {device!r}.")


def check_known_features(source: SyntheticModel) -> None:
    """Raise a `ReleaseError` unless known features are the same ones whoever draws them."""
    if source.config.get("seed") is None:
        raise ReleaseError(
            "`synthetic_model.config.seed` should be an integer, such as `seed: 0`, or each "
            "process would draw features of its own. Found none."
        )


def check_counts(config: RunnerConfig) -> None:
    """Raise a `ReleaseError` for batches without anything in them, and for no batches."""
    for name in COUNTS:
        if getattr(config, name, 1) < 1:
            raise ReleaseError(
                f"`runner.{name}` should be at least 1. Found {getattr(config, name)}."
            )


def check_dtype(config: RunnerConfig) -> None:
    """Raise a `ReleaseError` unless activations are of a floating type of SAELens's."""
    if isinstance(config, MultiSAETrainingRunnerConfig):
        key, dtype = "runner.dtype", config.dtype
    else:
        assert isinstance(config.synthetic_model, SyntheticModelConfig), "what a plan makes"
        key, dtype = "synthetic_model.config.dtype", config.synthetic_model.dtype
    with suppress(ValueError):
        if str_to_dtype(dtype).is_floating_point:
            return
    raise ReleaseError(f"`{key}` should be a floating type, like bfloat16. Found {dtype!r}.")


def check_positions(config: MultiSAETrainingRunnerConfig) -> None:
    """Raise a `ReleaseError` unless something of each row of tokens is trained on."""
    said = list(config.seqpos_slice)
    try:
        kept = range(config.context_size)[slice(*said)]
    except (TypeError, ValueError):
        kept = range(0)
    if not kept or kept.step < 1:
        raise ReleaseError(
            "`runner.seqpos_slice` should be `[start, end]` or `[start, end, step]`, and leave "
            f"some of a row's {config.context_size:,} tokens. Found {said}."
        )


def check_optimizer(config: RunnerConfig) -> None:
    """Raise a `ReleaseError` unless there is an optimizer with such a schedule."""
    if not (math.isfinite(config.lr) and config.lr >= 0):
        raise ReleaseError(
            f"`runner.lr` should be a finite number of at least 0. Found {config.lr!r}."
        )
    theirs = config.to_sae_trainer_config()
    assert theirs.lr_end is not None, "set by SAELens's config"
    warm_up, decay = theirs.lr_warm_up_steps, theirs.lr_decay_steps
    if min(warm_up, decay) < 0 or warm_up + decay > theirs.total_training_steps:
        raise ReleaseError(
            "`runner.lr_warm_up_steps` and `runner.lr_decay_steps` should be at least 0, and "
            f"together at most the steps of the training, {theirs.total_training_steps:,}. "
            f"Found {warm_up:,} and {decay:,}."
        )
    try:  # as SAELens's trainer makes them
        get_lr_scheduler(
            theirs.lr_scheduler_name,
            lr=theirs.lr,
            optimizer=torch.optim.Adam(
                [torch.zeros(1)],
                lr=theirs.lr,
                betas=(theirs.adam_beta1, theirs.adam_beta2),
            ),
            warm_up_steps=theirs.lr_warm_up_steps,
            decay_steps=theirs.lr_decay_steps,
            training_steps=theirs.total_training_steps,
            lr_end=theirs.lr_end,
            num_cycles=theirs.n_restart_cycles,
        )
    except (ArithmeticError, AssertionError, TypeError, ValueError) as error:
        raise ReleaseError(
            f"SAELens cannot make an optimizer of the runner's fields. {one_line(error)}"
        ) from None


def check_language_model(
    source: LanguageModel, configs: Mapping[str, TrainingSAEConfig]
) -> None:
    """Raise a `ReleaseError` unless the SAEs can be trained from one pass of a model."""
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
    if source.dataset == OFFLINE_DATASET and source.context_size > CONTEXT_SIZE:
        raise ReleaseError(
            f"`language_model.context_size` should be at most {CONTEXT_SIZE}, the tokens in a "
            f"row of {OFFLINE_DATASET}. Found {source.context_size:,}."
        )


def check_loader(source: LanguageModel, model_class_name: str) -> None:
    """Raise a `ReleaseError` unless what is to load a model is there, and knows it."""
    if model_class_name not in LOADERS:
        raise ReleaseError(
            f"`runner.model_class_name` should be one of {', '.join(LOADERS)}. Found "
            f"{model_class_name!r}."
        )
    name = source.name or source.hub_id
    if model_class_name != TRANSFORMER_LENS or official_name(name):
        return
    advice = (
        "Or have `transformers` load it, by `model_class_name: AutoModelForCausalLM` under "
        "`runner`, and give `hook_name` as it names modules."
    )
    short = name.rpartition("/")[2]
    if official_name(short):
        advice = f"Write `name: {short}` below it."
    raise ReleaseError(
        f"`language_model.{'name' if source.name else 'hub_id'}` should be a model that "
        f"TransformerLens has. Found {name}. {advice}"
    )


def anneal_steps(spec: SAESpec, config: TrainingSAEConfig, n_steps: int) -> int:
    """Over how many steps the k of an SAE is to fall; 0 for a k that is the same at all steps.

    Args:
        spec: The SAE, as the release has it.
        config: Its config.
        n_steps: Steps of its training.

    Returns:
        The number.

    Raises:
        ReleaseError: If it is no number of steps, training would be over before, or the
            architecture has no k.
    """
    if not hasattr(config, "k"):
        if K_ANNEAL_STEPS in spec.fields.keys() - spec.shared:
            raise ReleaseError(
                f"`sae.{K_ANNEAL_STEPS}` should go with an architecture that has a `k`. Found "
                f"{config.architecture()} in {spec.sae_id}."
            )
        return 0
    steps = spec.fields.get(K_ANNEAL_STEPS, 0)
    below = max(n_steps, 1)
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 <= steps < below:
        raise ReleaseError(
            f"`sae.{K_ANNEAL_STEPS}` should be a number of steps below those of the training, "
            f"{n_steps:,}. Found {steps!r}."
        )
    return steps


def checked_precision(name: object) -> str | None:
    """One of torch's names, or `None`, which leaves it to torch."""
    if name is None or name in PRECISIONS:
        return name and str(name)
    raise ReleaseError(
        f"`runner.{MATMUL_PRECISION}` should be one of {', '.join(PRECISIONS)}. Found {name!r}."
    )


def checked_multiple(value: object, source: LanguageModel | SyntheticModel) -> float | None:
    """A multiple of the median norm, or `None`, with which no token is left out."""
    if value is None:
        return None
    key = f"`runner.{NORM_MULTIPLE}`"
    if not isinstance(source, LanguageModel):
        raise ReleaseError(f"{key} should go with a `language_model`. Found {value!r}.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 1 <= value <= sys.float_info.max):  # type: ignore[operator]
        raise ReleaseError(f"{key} should be a finite number of at least 1. Found {value!r}.")
    return value  # type: ignore[return-value]
