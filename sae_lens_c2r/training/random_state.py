"""Torch's random states, to be kept and put back."""

from typing import Any

import torch


def random_state() -> dict[str, Any]:
    """Torch's random states, of the CPU and of all GPUs."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all()}


def restore_random(state: dict[str, Any]) -> None:
    """Put back what `random_state` returned, on as many GPUs as there are."""
    torch.set_rng_state(state["cpu"])
    for index, of_device in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(of_device, index)
