"""More processes than SAEs: each SAE has a team of them, which shares every batch."""

from dataclasses import dataclass

import torch.distributed as dist
from sae_lens.registry import get_sae_training_class
from torch.distributed import ProcessGroup

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.training.joined_step import is_joinable
from sae_lens_c2r.training.joined_trainer import check_parts
from sae_lens_c2r.training.joining import TIMEOUT
from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.ranks import Ranks


@dataclass(frozen=True)
class Team:
    """The processes that train the same SAEs as this one.

    Args:
        number: Which of the teams it is.
        count: How many teams there are.
        size: How many processes each has.
        is_first: Whether this is the process of the team that saves.
        process_group: The processes; `None` where there is but one.
    """

    number: int
    count: int
    size: int
    is_first: bool
    process_group: ProcessGroup | None


def team_size(plan: Plan, n_ranks: int) -> int:
    """How many processes a batch of each SAE is split over.

    Args:
        plan: The plan.
        n_ranks: How many processes there are in all.

    Returns:
        Their number: 1 unless there are more processes than SAEs.

    Raises:
        UserError: If the SAEs cannot have equally many, or the batches no equal parts, or it
            is not known what an SAE takes from all of a batch.
    """
    n_saes = len(plan.saes)
    if n_ranks <= n_saes:
        return 1
    if n_ranks % n_saes:
        raise UserError(
            f"Processes should be at most as many as SAEs, {n_saes}, or a multiple of that. "
            f"Found {n_ranks} of them."
        )
    check_parts(plan.batch_size, n_ranks // n_saes)
    for sae_id, config in plan.saes.items():
        if not is_joinable(get_sae_training_class(config.architecture())[0]):
            raise UserError(
                f"Processes should be at most as many as SAEs, {n_saes}, where an architecture "
                f"is not SAELens's or ours: {sae_id} is {config.architecture()!r}. Found "
                f"{n_ranks} of them."
            )
    return n_ranks // n_saes


def own_team(size: int, ranks: Ranks) -> Team:
    """The team of this process; all have to ask for it.

    Args:
        size: Processes of a team.
        ranks: The processes.

    Returns:
        The team: its processes follow each other.
    """
    number, count = ranks.rank // size, ranks.size // size
    groups = [None] * count
    if size > 1:
        with ranks.naming_who_ended():
            groups = [
                dist.new_group(list(range(first, first + size)), timeout=TIMEOUT)
                for first in range(0, ranks.size, size)
            ]
    return Team(number, count, size, ranks.rank % size == 0, groups[number])
