"""SAELens's runners, whose training can end at any step and continue there."""

import copy
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import torch
from datasets import Dataset
from sae_lens import MultiSAETrainingRunner, MultiSAETrainingRunnerConfig, TrainingSAE
from sae_lens.registry import get_sae_training_class
from sae_lens.synthetic import (
    SyntheticSAERunner,
    SyntheticSAERunnerResult,
    synthetic_sae_runner,
)
from sae_lens.training.multi_sae_trainer import MultiSAETrainer
from sae_lens.training.sae_trainer import SAETrainer

from sae_lens_c2r.offline.source import OFFLINE_DATASET, offline_source
from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.training.long_run import LongRun
from sae_lens_c2r.training.plan import Plan, runner_config
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
        """SAELens's own, which gives nobody its trainer: it is attached where it is made."""
        with patch.object(synthetic_sae_runner, "SAETrainer", self._attached_trainer):
            return super().run()

    def _attached_trainer(self, **arguments: Any) -> SAETrainer[Any, Any]:
        trainer: SAETrainer[Any, Any] = SAETrainer(**arguments)
        self._long_run.attach({self._sae_id: trainer})
        return trainer


def train_together(
    plan: Plan, sae_ids: list[str], long_run: LongRun, dataset: Dataset | None
) -> tuple[dict[str, TrainingSAE[Any]], dict[str, Any] | None]:
    """Have SAELens train SAEs in one run; with known features, evaluate too.

    Args:
        plan: The plan.
        sae_ids: Which of its SAEs: one, where the features are synthetic.
        long_run: What saves and resumes the run.
        dataset: Text in place of what the release names.

    Returns:
        The SAEs by their ids, and SAELens's evaluation, if there is one.
    """
    saes = {sae_id: _make(plan, sae_id) for sae_id in sae_ids}
    config: Any = runner_config(plan, sae_ids=sae_ids)
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        [(sae_id, sae)] = saes.items()
        synthetic = SyntheticRunner(config, long_run, sae_id, override_sae=sae)
        torch.manual_seed(plan.seeds[sae_id])
        result = synthetic.run()
        evaluation = result.final_eval.to_dict() if result.final_eval else None
        return {sae_id: result.sae}, evaluation
    if source.dataset == OFFLINE_DATASET:
        config.model_name, dataset = offline_source(dataset)
    runner = LanguageModelRunner(config, long_run, override_saes=saes, override_dataset=dataset)
    torch.manual_seed(config.seed)  # SAELens draws the order of the data from torch's state
    trained = runner.run()
    for sae in trained.values():
        sae.cfg.metadata.model_name = source.name or source.hub_id  # not where it lies here
    return trained, None


def _make(plan: Plan, sae_id: str) -> TrainingSAE[Any]:
    config = copy.deepcopy(plan.saes[sae_id])  # SAELens changes it when it has trained
    if sae_id in plan.starts:
        return plan.starts[sae_id].begin(config)
    sae_class, _ = get_sae_training_class(config.architecture())
    torch.manual_seed(plan.seeds[sae_id])
    return sae_class(config)
