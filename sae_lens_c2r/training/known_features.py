"""Training on known features: SAELens's runner for them, for SAEs that share one stream."""

from typing import Any

import wandb
from sae_lens import TrainingSAE
from sae_lens.synthetic import SyntheticModel, SyntheticSAERunnerConfig
from sae_lens.synthetic.evals import SyntheticDataEvalResult, eval_sae_on_synthetic_data
from sae_lens.synthetic.training import SyntheticActivationIterator
from sae_lens.training.activation_scaler import ActivationScaler
from sae_lens.training.multi_sae_trainer import MultiSAETrainer

from sae_lens_c2r.training.fitting import fit
from sae_lens_c2r.training.long_run import LongRun
from sae_lens_c2r.training.shared_stream import (
    EVALUATION_SEED,
    FEATURES,
    KnownFeatures,
    seeded,
)


def train_on_known_features(
    config: SyntheticSAERunnerConfig[Any], saes: dict[str, TrainingSAE[Any]], long_run: LongRun
) -> dict[str, dict[str, Any]]:
    """Train SAEs on one stream of known features, and evaluate them.

    Args:
        config: SAELens's config, with any of the SAEs.
        saes: The SAEs by their ids, which are changed.
        long_run: What saves and resumes the run.

    Returns:
        SAELens's evaluation of each, unless the config wants none.
    """
    model = SyntheticModel.load_from_source(config.synthetic_model, device=config.device)
    if config.logger.log_to_wandb:
        wandb.init(
            project=config.logger.wandb_project,
            entity=config.logger.wandb_entity,
            config={**config.to_dict(), "saes": {i: s.cfg.to_dict() for i, s in saes.items()}},
            name=config.logger.run_name,
            id=config.logger.wandb_id,
        )
    for sae in saes.values():
        sae.to(config.device)
    batches = SyntheticActivationIterator(
        feature_dict=model.feature_dict,
        activations_generator=model.activation_generator,
        batch_size=config.batch_size,
        autocast=config.autocast_data,
    )
    stream = KnownFeatures(
        batches.next_batch, long_run.ranks, config.device, long_run.data_state
    )
    evaluator = _Evaluator(model, config)
    trainer = MultiSAETrainer(
        cfg=config.to_sae_trainer_config(),
        saes=saes,
        hook_names=dict.fromkeys(saes, FEATURES),
        data_provider=stream,
        evaluator=evaluator if config.eval_frequency > 0 else None,
    )
    fit(trainer, long_run, stream)
    evaluations = {}
    if config.eval_samples > 0 and config.run_final_eval:
        results = {sae_id: evaluator.evaluate(sae) for sae_id, sae in saes.items()}
        evaluations = {sae_id: result.to_dict() for sae_id, result in results.items()}
        if config.logger.log_to_wandb:
            for sae_id, result in results.items():
                wandb.log(result.to_log_dict(prefix=f"{sae_id}/final/"))
    if config.logger.log_to_wandb:
        wandb.finish()
    return evaluations


class _Evaluator:
    """SAELens's evaluation against the features, of every SAE on the same samples."""

    def __init__(self, model: SyntheticModel, config: SyntheticSAERunnerConfig[Any]) -> None:
        self._model, self._config = model, config

    def evaluate(
        self, sae: TrainingSAE[Any], scaler: ActivationScaler | None = None
    ) -> SyntheticDataEvalResult:
        with seeded(EVALUATION_SEED, self._config.device):
            return eval_sae_on_synthetic_data(
                sae=sae,
                feature_dict=self._model.feature_dict,
                activations_generator=self._model.activation_generator,
                num_samples=self._config.eval_samples,
                batch_size=self._config.batch_size,
                activation_scaler=scaler,
            )

    def __call__(
        self,
        saes: dict[str, TrainingSAE[Any]],
        data_provider: Any,  # noqa: ARG002
        activation_scalers: dict[str, ActivationScaler],
        hook_names: dict[str, str],  # noqa: ARG002
    ) -> dict[str, Any]:
        """What SAELens logs of several SAEs."""
        logged = {}
        for sae_id, sae in saes.items():
            result = self.evaluate(sae, activation_scalers[sae_id])
            for name, value in result.to_log_dict(prefix="synthetic/").items():
                logged[f"{sae_id}/{name}"] = value
        return logged
