"""SAELens's loop over steps, as a run of ours drives it."""

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from sae_lens import LoggingConfig, MultiSAETrainingRunnerConfig
from sae_lens.training.multi_sae_trainer import MultiSAETrainer
from torch import Tensor

from sae_lens_c2r._support.stopping import StopRequest
from sae_lens_c2r.training.checkpoint import Checkpoints
from sae_lens_c2r.training.fitting import fit
from sae_lens_c2r.training.long_run import LongRun
from sae_lens_c2r.training.runners import LanguageModelRunner
from tests.architectures.training import make_config, make_sae, make_trainer, noise
from tests.language_model import CONTEXT, D_MODEL, HOOK, rows_of_tokens, tiny_model

MODES = ("expected_average_only_in", "covariance_whitening")


def long_run(folder: Path) -> LongRun:
    return LongRun(
        Checkpoints(folder), StopRequest(), every_seconds=0, about={}, resumed=None, tell=print
    )


@pytest.mark.parametrize("modes", [MODES[:1] * 2, MODES[1:] * 2, MODES, ("none", "none")])
def test_what_is_estimated_once_is_what_sae_lens_estimates_for_each(
    modes: tuple[str, str], tmp_path: Path
) -> None:
    weights = []
    for ours in (False, True):
        saes = {
            str(i): make_sae("batchtopk_c2r", seed=i, normalize_activations=mode)
            for i, mode in enumerate(modes)
        }
        torch.manual_seed(0)
        stream = iter([{HOOK: batch} for batch in islice(noise(), 40)])
        cfg = replace(make_trainer(saes["0"], 6, iter(())).cfg, n_batches_for_norm_estimate=5)
        trainer = MultiSAETrainer(cfg, saes, dict.fromkeys(saes, HOOK), stream)
        trained: Any = fit(trainer, long_run(tmp_path), None) if ours else trainer.fit()
        weights.append([sae.W_dec for sae in trained.values()])
    assert all(map(torch.equal, *weights))


@pytest.mark.filterwarnings("ignore")  # SAELens's, of so small a dataset
def test_what_evaluations_read_is_not_missing_from_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))

    def train(logger: LoggingConfig) -> Tensor:
        cfg = MultiSAETrainingRunnerConfig(
            saes={"sae": make_config("batchtopk_c2r", d_in=D_MODEL, d_sae=32, k=4)},
            hook_names=HOOK,
            streaming=False,
            prepend_bos=False,
            context_size=CONTEXT,
            training_tokens=12 * 16,
            train_batch_size_tokens=16,
            store_batch_size_prompts=3,
            n_batches_in_buffer=6,
            n_eval_batches=1,
            checkpoint_path=None,
            output_path=None,
            logger=logger,
        )
        model = tiny_model()  # drawn at random when it is first asked for
        torch.manual_seed(0)
        runner = LanguageModelRunner(
            cfg,
            long_run(tmp_path),
            override_dataset=rows_of_tokens(),
            override_model=model,
        )
        torch.manual_seed(1)
        return runner.run()["sae"].W_dec

    logged = LoggingConfig(wandb_log_frequency=1, eval_every_n_wandb_logs=2)
    assert torch.equal(train(logged), train(LoggingConfig(log_to_wandb=False)))
