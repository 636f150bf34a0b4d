"""Settings of a process that `torchrun` has started, before torch is imported."""

import logging
import os
import warnings


def take_place() -> None:
    """Settle what a process has of its machine, and that only the first one is heard.

    Each has one GPU, by the same name as the others', so that neither configs nor random
    states depend on where something is trained.
    """
    if "LOCAL_RANK" in os.environ:
        local, visible = os.environ["LOCAL_RANK"], os.environ.get("CUDA_VISIBLE_DEVICES")
        # Where there are too few it has none, and is refused for the device that it lacks.
        own = [local] if visible is None else visible.split(",")[int(local) :][:1]
        os.environ["CUDA_VISIBLE_DEVICES"] = "".join(own)
    if int(os.environ.get("RANK", "0")) > 0:
        os.environ["TQDM_DISABLE"] = "1"
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)


def was_restarted() -> bool:
    """Whether `torchrun` has started the process in place of one that has ended."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
