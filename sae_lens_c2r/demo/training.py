"""Training of both SAEs by SAELens's multi-SAE runner: same activations, same order."""

import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from jaxtyping import Int
from sae_lens import (
    BatchTopKTrainingSAE,
    BatchTopKTrainingSAEConfig,
    LoggingConfig,
    MultiSAETrainingRunner,
    MultiSAETrainingRunnerConfig,
    TrainingSAE,
)
from sae_lens.saes.sae import TrainStepOutput
from sae_lens.training._interruption import InterruptedException
from sae_lens.training.multi_sae_trainer import MultiSAETrainer
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor

from sae_lens_c2r.analysis import composition
from sae_lens_c2r.architectures import BatchTopKC2RTrainingSAEConfig
from sae_lens_c2r.demo.settings import (
    BATCH_SIZE,
    D_IN,
    HOOK_NAME,
    PLAIN,
    REGULARIZED,
    DemoSettings,
)
from sae_lens_c2r.offline.corpus import NAME
from sae_lens_c2r.offline.minilm import CLS, CONTEXT_SIZE, HUB_ID, PAD, SEP

RECORD_EVERY = 10  # steps
PROGRESS_EVERY = 5  # steps


@dataclass
class History:
    """What one SAE's training looked like."""

    steps: list[int] = field(default_factory=list)
    explained_variance: list[float] = field(default_factory=list)
    composition: list[float] = field(default_factory=list)
    seconds: float = 0.0
    tokens: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Speed of the SAE's own steps, without the transformer's."""
        return self.tokens / self.seconds

    def record(self, step: int, output: TrainStepOutput, W_dec: Tensor) -> None:
        """Add a point to the curves."""
        residual = (output.sae_in - output.sae_out).pow(2).sum()
        total = (output.sae_in - output.sae_in.mean(dim=0)).pow(2).sum()
        self.steps.append(step)
        self.explained_variance.append(1 - (residual / total).item())
        self.composition.append(composition(W_dec))


@dataclass
class Trained:
    """What training leaves behind."""

    model: Any
    saes: dict[str, BatchTopKTrainingSAE]
    histories: dict[str, History]


class _RecordingRunner(MultiSAETrainingRunner):
    """SAELens's runner with a record of every step: SAELens itself logs to wandb only."""

    histories: dict[str, History]

    def _run_with_interruption_handling(
        self, trainer: MultiSAETrainer
    ) -> dict[str, TrainingSAE[Any]]:
        self.histories = {name: History() for name in trainer.trainers}
        for name, sae_trainer in trainer.trainers.items():
            _record_steps(sae_trainer, self.histories[name])
        # SAELens moves its bar every 100 steps, which here is half of the training.
        trainer._update_pbar = partial(trainer._update_pbar, update_interval=PROGRESS_EVERY)  # type: ignore[method-assign]
        return super()._run_with_interruption_handling(trainer)


def _record_steps(trainer: SAETrainer[Any, Any], history: History) -> None:
    step = trainer.step

    def recorded_step(batch: Tensor) -> TrainStepOutput:
        _wait_for(batch.device)
        start = time.perf_counter()
        output = step(batch)
        _wait_for(batch.device)
        if trainer.n_training_steps > 0:  # the first step also warms up
            history.seconds += time.perf_counter() - start
            history.tokens += len(batch)
        if trainer.n_training_steps % RECORD_EVERY == 0:
            with torch.no_grad():
                history.record(trainer.n_training_steps, output, trainer.sae.W_dec)
        return output

    trainer.step = recorded_step  # type: ignore[method-assign]


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(
    settings: DemoSettings, rows: Int[Tensor, "rows context"], model_folder: Path
) -> Trained:
    """Train `batchtopk` and `batchtopk_c2r` from the same weights on the same activations.

    Args:
        settings: The demo's options.
        rows: Token ids to train on.
        model_folder: The transformer.

    Returns:
        The transformer, both SAEs and their histories.

    Raises:
        KeyboardInterrupt: If the process is told to stop or to end.
    """
    configs = _sae_configs(settings)
    saes = {name: _initialized(config, settings.seed) for name, config in configs.items()}
    runner_config = MultiSAETrainingRunnerConfig(
        saes=configs,
        hook_names=HOOK_NAME,
        model_class_name="AutoModelForCausalLM",
        model_name=str(model_folder),
        context_size=CONTEXT_SIZE,
        prepend_bos=False,
        exclude_special_tokens=[PAD, CLS, SEP],
        streaming=False,
        training_tokens=settings.tokens,
        train_batch_size_tokens=BATCH_SIZE,
        store_batch_size_prompts=32,
        n_batches_in_buffer=256,
        n_batches_for_norm_estimate=10,
        lr=1e-3,
        dead_feature_window=100,
        feature_sampling_window=200,
        device=settings.device,
        checkpoint_path=None,
        output_path=None,
        logger=LoggingConfig(log_to_wandb=False),
    )
    runner = _RecordingRunner(
        runner_config,
        override_dataset=Dataset.from_dict({"tokens": rows.tolist()}),
        override_saes=dict(saes),
    )
    torch.manual_seed(settings.seed)  # SAELens draws the order of the data from torch's state
    try:
        runner.run()
    except InterruptedException as error:
        raise KeyboardInterrupt from error  # SAELens makes its own of both signals
    for sae in saes.values():
        sae.cfg.metadata.model_name = HUB_ID  # where others find it, not where it lies here
        sae.cfg.metadata.dataset_path = NAME
    return Trained(runner.model, saes, runner.histories)


def _sae_configs(settings: DemoSettings) -> dict[str, BatchTopKTrainingSAEConfig]:
    common: dict[str, Any] = {
        "d_in": D_IN,
        "d_sae": settings.d_sae,
        "k": settings.k,
        "device": settings.device,
        "normalize_activations": "expected_average_only_in",
        "topk_threshold_lr": 0.1,  # the default, 0.01, takes more steps than the demo has
    }
    c2r: dict[str, Any] = {
        "c2r_coefficient": settings.c2r_coefficient,
        "c2r_seed": settings.seed,
    }
    return {
        PLAIN: BatchTopKTrainingSAEConfig(**common),
        REGULARIZED: BatchTopKC2RTrainingSAEConfig(**common, **c2r),
    }


def _initialized(config: BatchTopKTrainingSAEConfig, seed: int) -> BatchTopKTrainingSAE:
    torch.manual_seed(seed)
    sae_class = BatchTopKTrainingSAE.get_sae_class_for_architecture(config.architecture())
    return sae_class(config)
