"""What wandb is told of a training of several processes: a run of each, in one group."""

import os

from sae_lens.config import LoggingConfig

from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.ranks import Ranks


def one_run_a_rank(logger: LoggingConfig, plan: Plan, ranks: Ranks) -> None:
    """Give this process's run a name of its own, and the group of them all.

    Args:
        logger: SAELens's config of it, which is changed.
        plan: What is trained.
        ranks: The processes.
    """
    if ranks.size == 1 or not logger.log_to_wandb:
        return
    os.environ.setdefault("WANDB_RUN_GROUP", logger.wandb_id or plan.release.name)
    logger.run_name = f"{logger.run_name}-rank-{ranks.rank}"
    if logger.wandb_id is not None:
        logger.wandb_id = f"{logger.wandb_id}-rank-{ranks.rank}"
