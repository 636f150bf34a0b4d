"""SAELens's runners, whose training can end at any step and continue there."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from sae_lens import MultiSAETrainingRunner, MultiSAETrainingRunnerConfig, TrainingSAE
from sae_lens.registry import get_sae_training_class
from sae_lens.training.multi_sae_trainer import MultiSAETrainer

from sae_lens_c2r._support.false_alarms import no_false_alarms
from sae_lens_c2r._support.network import needing_the_hub
from sae_lens_c2r.offline.source import OFFLINE_DATASET, offline_source, where_model_is
from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.saes.start_from import start_from
from sae_lens_c2r.training.annealing import anneal_k
from sae_lens_c2r.training.fitting import fit
from sae_lens_c2r.training.known_features import train_on_known_features
from sae_lens_c2r.training.long_run import LongRun
from sae_lens_c2r.training.plan import Plan, runner_config
from sae_lens_c2r.training.shared_stream import Batch
from sae_lens_c2r.training.stream import ActivationStream
from sae_lens_c2r.training.wandb_runs import one_run_a_rank


class LanguageModelRunner(MultiSAETrainingRunner):
    """SAEs of one hook of a language model, all at once.

    Args:
        cfg: SAELens's config.
        long_run: What saves and resumes it.
        norm_multiple: Activations above that many times the median norm are left out.
        overrides: As SAELens's runner takes them.
    """

    def __init__(
        self,
        cfg: MultiSAETrainingRunnerConfig,
        long_run: LongRun,
        *,
        norm_multiple: float | None = None,
        **overrides: Any,
    ) -> None:
        super().__init__(cfg, **overrides)
        self._long_run, self._norm_multiple = long_run, norm_multiple
        # SAELens would begin to prefetch before the stream is where the run continues.
        self._prefetch = int(cfg.prefetch_llm_batches)
        cfg.prefetch_llm_batches = False
        self.activations_store.get_multi_hook_data_loader = self._batches  # type: ignore[method-assign]
        # Evaluations read text too. What they read should not be missing from the training,
        # and how much it is depends on the SAEs of this process.
        self.evaluator.activations_store = copy.copy(self.activations_store)
        again = self.evaluator.activations_store._iterate_tokenized_sequences()
        self.evaluator.activations_store.iterable_sequences = again

    def _batches(self) -> Iterator[Batch]:
        self._stream = ActivationStream(
            self.activations_store,
            prefetch=self._prefetch,
            state=self._long_run.data_state,
            ranks=self._long_run.ranks,
            norm_multiple=self._norm_multiple,
        )
        return self._stream.batches

    def _run_with_interruption_handling(
        self, trainer: MultiSAETrainer
    ) -> dict[str, TrainingSAE[Any]]:
        return fit(trainer, self._long_run, self._stream)


@no_false_alarms()
def train_together(
    plan: Plan, sae_ids: list[str], long_run: LongRun
) -> tuple[dict[str, TrainingSAE[Any]], dict[str, dict[str, Any]]]:
    """Have SAELens train SAEs in one run; with known features, evaluate too.

    Args:
        plan: The plan.
        sae_ids: Which of its SAEs are this process's to train.
        long_run: What saves and resumes the run.

    Returns:
        The SAEs by their ids, and SAELens's evaluations, where there are any.
    """
    saes = {sae_id: _make(plan, sae_id) for sae_id in sae_ids}
    config: Any = runner_config(plan, sae_ids=sae_ids)
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        one_run_a_rank(config.logger, plan, long_run.ranks)
        return saes, train_on_known_features(config, saes, long_run)
    one_run_a_rank(config.logger, plan, long_run.ranks)
    dataset = plan.dataset
    if source.dataset == OFFLINE_DATASET:
        config.model_name, dataset = offline_source(plan.dataset)
    elif not config.model_from_pretrained_kwargs.get("revision"):
        config.model_name = where_model_is(config.model_name)
    needed = f"The model {source.name or source.hub_id} or the text {source.dataset}"
    with needing_the_hub(needed):
        runner = LanguageModelRunner(
            config,
            long_run,
            norm_multiple=plan.norm_multiple,
            override_saes=saes,
            override_dataset=dataset,
        )
    torch.manual_seed(config.seed)  # SAELens draws the order of the data from torch's state
    trained = runner.run()
    for sae in trained.values():
        sae.cfg.metadata.model_name = source.name or source.hub_id  # not where it lies here
    return trained, {}


def _make(plan: Plan, sae_id: str) -> TrainingSAE[Any]:
    sae = _begin(plan, sae_id)
    if sae_id in plan.k_anneal_steps:
        anneal_k(sae, plan.k_anneal_steps[sae_id])
    return sae


def _begin(plan: Plan, sae_id: str) -> TrainingSAE[Any]:
    config = copy.deepcopy(plan.saes[sae_id])  # SAELens changes it when it has trained
    if sae_id in plan.starts:
        _, sae = plan.starts[sae_id].pin()
        return start_from(sae, config)
    sae_class, _ = get_sae_training_class(config.architecture())
    torch.manual_seed(plan.seeds[sae_id])
    return sae_class(config)
