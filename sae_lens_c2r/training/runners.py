"""Training of SAEs together, from one pass of a language model."""

import copy
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from typing import Any

import torch
import wandb
from sae_lens import MultiSAETrainingRunner, TrainingSAE
from sae_lens.registry import get_sae_training_class
from sae_lens.training.prefetch import PrefetchingIterator

from sae_lens_c2r._support.remote_code import remote_code
from sae_lens_c2r.models.loading import load
from sae_lens_c2r.models.reading import Reading, complete
from sae_lens_c2r.models.text import check_tokenizer, read_text, rows_for
from sae_lens_c2r.saes.origins import pin
from sae_lens_c2r.saes.start_from import start_from
from sae_lens_c2r.training.distributed import rank, world_size
from sae_lens_c2r.training.plan import Plan, runner_config
from sae_lens_c2r.training.stream import ActivationStream
from sae_lens_c2r.training.trainer import Job, Trainer

SAEs = dict[str, TrainingSAE[Any]]


@remote_code()
def train_together(plan: Plan, sae_ids: list[str], job: Job) -> SAEs:
    """Train SAEs of a plan in one run."""
    saes = {sae_id: _make(plan, sae_id) for sae_id in sae_ids}
    config: Any = runner_config(plan, sae_ids=sae_ids)
    source = plan.release.language_model
    with wandb_run(config, saes, group=plan.release.name):
        text = read_text(source.text, streaming=config.streaming)
        rows: Any = rows_for(text, source.hub_id or source.name, source.context_size)
        reading = Reading.of_settings(plan.settings())
        model = load(reading, config.llm_device, hook_names=[source.hook_name])
        check_tokenizer(rows, source.text, model.tokenizer)
        runner = MultiSAETrainingRunner(
            config, override_model=model, override_saes=saes, override_dataset=rows
        )
        train_on_language_model(runner, job, norm_multiple=plan.norm_multiple)
    for sae in saes.values():
        complete(sae.cfg.metadata, plan.settings())  # what SAELens leaves out
    return saes


def _make(plan: Plan, sae_id: str) -> TrainingSAE[Any]:
    config = copy.deepcopy(plan.saes[sae_id])  # SAELens changes it when it has trained
    if sae_id in plan.starts:
        _, sae = pin(plan.starts[sae_id])
        return start_from(sae, config)
    sae_class, _ = get_sae_training_class(config.architecture())
    torch.manual_seed(plan.seeds[sae_id])
    return sae_class(config)


def train_on_language_model(
    runner: MultiSAETrainingRunner, job: Job, *, norm_multiple: float | None = None
) -> SAEs:
    """Train the SAEs of SAELens's runner on its model and text."""
    cfg, store = runner.cfg, runner.activations_store
    runner._set_sae_metadata()
    # Evaluations read text too. What they read should not be missing from the training,
    # and how much it is depends on the SAEs of this process.
    again = copy.copy(store)
    # `datasets` notes in a dataset how far it was read, and two threads may read.
    again.dataset = copy.deepcopy(store.dataset)
    again.iterable_sequences = again._iterate_tokenized_sequences()
    runner.evaluator.activations_store = again
    state = job.resumed.about["stream"] if job.resumed else None
    trainer = cfg.to_sae_trainer_config()
    n_batches = -(-trainer.total_training_samples // trainer.train_batch_size_samples)
    stream = ActivationStream(
        store,
        seed=cfg.seed,
        state=state,
        n_batches=n_batches + trainer.n_batches_for_norm_estimate,
        norm_multiple=norm_multiple,
    )
    n_ahead = int(cfg.prefetch_llm_batches)
    ahead: Any = nullcontext(stream)
    # Where there are several processes, a thread and the training would talk to them at once.
    if n_ahead and world_size() == 1:
        ahead = closing(PrefetchingIterator(stream, prefetch=n_ahead))
    with ahead as batches:
        return Trainer(
            trainer,
            runner.saes,
            store.hook_name,
            batches,
            job,
            evaluator=runner.evaluator,
            stream_state=stream.state,
        ).fit()


@contextmanager
def wandb_run(config: Any, saes: SAEs, *, group: str) -> Iterator[None]:
    """While it lasts, each process has a run of wandb's, if the logger wants one."""
    logger = config.logger
    if not logger.log_to_wandb:
        yield
        return
    run_id, suffix = logger.wandb_id, ""
    if world_size() > 1:
        os.environ.setdefault("WANDB_RUN_GROUP", run_id or group)
        suffix = f"-rank-{rank()}"
    wandb.init(
        project=logger.wandb_project,
        entity=logger.wandb_entity,
        config={**config.to_dict(), "saes": {i: sae.cfg.to_dict() for i, sae in saes.items()}},
        name=f"{logger.run_name}{suffix}",
        id=run_id and f"{run_id}{suffix}",
    )
    exit_code = 1
    try:
        yield
        exit_code = 0
    finally:  # or what is trained next in this process would be logged to this run
        wandb.finish(exit_code)
