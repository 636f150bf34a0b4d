"""Which process, or group of processes, trains which SAEs: every one about as much."""

from collections.abc import Mapping

from sae_lens.saes.sae import TrainingSAEConfig


def step_cost(config: TrainingSAEConfig) -> int:
    """Multiplications in a sample of a training step, up to a factor that all SAEs share.

    Args:
        config: The SAE's.

    Returns:
        Encoding and decoding; for a Matryoshka SAE also its sub-SAEs' part in their losses.
    """
    # Each loss of a sub-SAE reaches back to all of the latents that it consists of.
    latents = 2 * config.d_sae + sum(getattr(config, "matryoshka_widths", []))
    return config.d_in * latents


def place(configs: Mapping[str, TrainingSAEConfig], n_ranks: int) -> list[list[str]]:
    """Place SAEs on processes: the most costly one first, where there is least so far.

    Args:
        configs: The SAEs' configs by their ids.
        n_ranks: How many processes, or groups of them, there are.

    Returns:
        The ids of each process, in the order in which they were given; none where there are
        fewer SAEs than processes.
    """
    order = list(configs)
    shares: list[list[str]] = [[] for _ in range(n_ranks)]
    costs = [0] * n_ranks
    for sae_id in sorted(order, key=lambda sae_id: -step_cost(configs[sae_id])):
        rank = costs.index(min(costs))
        shares[rank].append(sae_id)
        costs[rank] += step_cost(configs[sae_id])
    return [sorted(share, key=order.index) for share in shares]


def trained_by(shares: list[list[str]], rank: int) -> list[str]:
    """The SAEs that a process trains: its own, or else one that the first process saves.

    So one without an SAE of its own takes part in the stream like all the others.

    Args:
        shares: The ids of each process, by `place`.
        rank: The process.

    Returns:
        Their ids.
    """
    return shares[rank] or shares[0][:1]
