"""SAELens's runners, whose training can end at any step and continue there."""

from collections.abc import Iterator
from typing import Any

import wandb
from sae_lens import MultiSAETrainingRunner, MultiSAETrainingRunnerConfig, TrainingSAE
from sae_lens.synthetic import (
    SyntheticActivationIterator,
    SyntheticSAERunner,
    SyntheticSAERunnerResult,
    eval_sae_on_synthetic_data,
)
from sae_lens.training.multi_sae_trainer import MultiSAETrainer
from sae_lens.training.sae_trainer import SAETrainer
from torch import Tensor

from sae_lens_c2r.training.long_run import LongRun
from sae_lens_c2r.training.stream import ActivationStream, Batch

PROGRESS_EVERY = 10


class LanguageModelRunner(MultiSAETrainingRunner):
    """SAEs of one hook of a language model, all at once.

    Args:
        cfg: SAELens's config.
        long_run: What saves and resumes it.
        overrides: As SAELens's runner takes them.
    """

    def __init__(
        self, cfg: MultiSAETrainingRunnerConfig, long_run: LongRun, **overrides: Any
    ) -> None:
        super().__init__(cfg, **overrides)
        self._long_run = long_run
        # SAELens would begin to prefetch before the stream is where the run continues.
        self._prefetch = int(cfg.prefetch_llm_batches)
        cfg.prefetch_llm_batches = False
        self.activations_store.get_multi_hook_data_loader = self._batches  # type: ignore[method-assign]

    def _batches(self) -> Iterator[Batch]:
        self._stream = ActivationStream(
            self.activations_store,
            prefetch=self._prefetch,
            state=self._long_run.data_state,
        )
        return self._stream.batches

    def _run_with_interruption_handling(
        self, trainer: MultiSAETrainer
    ) -> dict[str, TrainingSAE[Any]]:
        self._long_run.attach(trainer.trainers, self._stream)
        first = next(iter(trainer.trainers.values()))
        trainer.n_training_steps = first.n_training_steps
        trainer.n_training_samples = first.n_training_samples
        move_bar = trainer._update_pbar

        def move_bar_to_sample(outputs: Any, bar: Any) -> None:
            # SAELens moves it every 100 steps, and from 0 in a run that is resumed.
            move_bar(outputs, bar, update_interval=PROGRESS_EVERY)
            if trainer.n_training_steps % PROGRESS_EVERY == 0:
                bar.n = trainer.n_training_samples
                bar.refresh()

        trainer._update_pbar = move_bar_to_sample  # type: ignore[method-assign, assignment]
        return trainer.fit()


class SyntheticRunner(SyntheticSAERunner[Any]):
    """One SAE of known features.

    Args:
        cfg: SAELens's config.
        long_run: What saves and resumes it.
        sae_id: The SAE's id in its checkpoints.
        overrides: As SAELens's runner takes them.
    """

    def __init__(self, cfg: Any, long_run: LongRun, sae_id: str, **overrides: Any) -> None:
        super().__init__(cfg, **overrides)
        self._long_run = long_run
        self._sae_id = sae_id

    def run(self) -> SyntheticSAERunnerResult:
        """What SAELens's runner does, which gives nobody its trainer."""
        cfg, features = self.cfg, self.synthetic_model
        if cfg.logger.log_to_wandb:
            wandb.init(
                project=cfg.logger.wandb_project,
                entity=cfg.logger.wandb_entity,
                config=cfg.to_dict(),
                name=cfg.logger.run_name,
            )
        samples: Iterator[Tensor] = SyntheticActivationIterator(
            feature_dict=features.feature_dict,
            activations_generator=features.activation_generator,
            batch_size=cfg.batch_size,
            autocast=cfg.autocast_data,
        )
        trainer: SAETrainer[Any, Any] = SAETrainer(
            cfg=cfg.to_sae_trainer_config(),
            sae=self.sae,
            data_provider=samples,
            evaluator=self._create_evaluator() if cfg.eval_frequency > 0 else None,
        )
        self._long_run.attach({self._sae_id: trainer})
        sae = trainer.fit()
        evaluation = None
        if cfg.eval_samples > 0 and cfg.run_final_eval:
            evaluation = eval_sae_on_synthetic_data(
                sae=sae,
                feature_dict=features.feature_dict,
                activations_generator=features.activation_generator,
                num_samples=cfg.eval_samples,
                batch_size=cfg.batch_size,
            )
        if cfg.logger.log_to_wandb:
            if evaluation is not None:
                wandb.log(evaluation.to_log_dict(prefix="final/"))
            wandb.finish()
        return SyntheticSAERunnerResult(sae, features, evaluation, output_path=None)
