"""What all processes of a training have to have alike, checked before it begins."""

import time
from pathlib import Path
from typing import Any

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r._support.writing import begin_folder
from sae_lens_c2r.training.plan import Plan
from sae_lens_c2r.training.ranks import Ranks
from sae_lens_c2r.training.record import circumstances
from sae_lens_c2r.training.sameness import difference, settings_of
from sae_lens_c2r.training.teams import team_size

PATIENCE = 10.0  # seconds until a file that another machine has written shows up


def check_same_plan(plan: Plan, ranks: Ranks, **options: Any) -> None:
    """Raise unless all processes are to do the same.

    Args:
        plan: This process's plan.
        ranks: The processes.
        options: What else has to be alike.

    Raises:
        UserError: In all of them: the plan, an option or a version differs, or there are not
            as many processes as can be used.
    """
    team_size(plan, ranks.size)
    here = circumstances(plan.device)
    about = {
        **settings_of(plan, list(plan.saes)),
        "order": list(plan.saes),
        "options": options,
        "device": plan.device,
        **{name: here[name] for name in ("python", "versions")},
    }
    first, *others = ranks.gather(about)
    for rank, other in enumerate(others, 1):
        differs = difference(first, other)
        if differs is not None:
            raise UserError(
                "All ranks should have the same plan and versions. Those of rank "
                f"{rank} are not those of rank 0. {differs}"
            )


def check_shared_folder(folder: Path, ranks: Ranks) -> None:
    """Raise unless all processes see one and the same folder.

    Args:
        folder: The folder, which exists where rank 0 is.
        ranks: The processes.

    Raises:
        UserError: In all of them, if one does not find there what rank 0 has written.
    """
    if ranks.size == 1:
        return
    token = ranks.on_first(lambda: begin_folder(folder))
    found = ranks.gather(_appears(token))
    ranks.on_first(token.rmdir)
    if not all(found):
        raise UserError(
            f"`out` should be a folder that all ranks share. Rank {found.index(False)} does "
            f"not find in {folder} what rank 0 has written there."
        )


def _appears(path: Path) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
