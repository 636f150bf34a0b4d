"""Bytes that training takes on disk and in memory, and the work of each process."""

from collections.abc import Iterable, Mapping

from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.util import str_to_dtype

from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.training.plan import Plan


def weight_bytes(config: TrainingSAEConfig) -> int:
    """Size of an SAE's weights: an encoder, a decoder and their biases."""
    numbers = 2 * config.d_in * config.d_sae + config.d_in + config.d_sae
    return str_to_dtype(config.dtype).itemsize * numbers


def disk_bytes(plan: Plan) -> int:
    """Bytes that the trained SAEs will take."""
    return sum(weight_bytes(config) for config in plan.saes.values())


def checkpoint_bytes(plan: Plan) -> int:
    """Bytes of a checkpoint: weights, Adam's moments, latents' counters."""
    return sum(3 * weight_bytes(each) + 8 * each.d_sae for each in plan.saes.values())


def memory_bytes(plan: Plan, sae_ids: Iterable[str] | None = None, *, n_parts: int = 1) -> int:
    """Bytes of a process, about, beside the model; `n_parts` processes share each batch."""
    configs = [plan.saes[sae_id] for sae_id in sae_ids or plan.saes]
    # Weights, gradients and Adam's two moments; activations before, after and backwards.
    states = sum(4 * weight_bytes(config) for config in configs)
    n_samples = plan.batch_size // n_parts
    acts = max(3 * 4 * n_samples * config.d_sae for config in configs)
    return states + acts + _buffer_bytes(plan)


def _buffer_bytes(plan: Plan) -> int:
    """The buffer that is shuffled, a part of the next, and the pass of the model on top."""
    source = plan.release.source
    if not isinstance(source, LanguageModel):
        return 0
    # A batch of the buffer is one row of text, however many rows a pass of the model takes.
    batches = plan.runner_value("n_batches_in_buffer")
    rows = 2 * batches + plan.runner_value("store_batch_size_prompts")
    tokens = len(range(source.context_size)[slice(*plan.runner_value("seqpos_slice"))])
    d_in = next(iter(plan.saes.values())).d_in
    return rows * tokens * d_in * str_to_dtype(plan.runner_value("dtype")).itemsize


def step_cost(config: TrainingSAEConfig) -> int:
    """Multiplications in a sample of a training step, up to a factor that all SAEs share."""
    # Each loss of a Matryoshka sub-SAE reaches back to all of the latents that it consists of.
    latents = 2 * config.d_sae + sum(getattr(config, "matryoshka_widths", []))
    return config.d_in * latents


def place(configs: Mapping[str, TrainingSAEConfig], n_ranks: int) -> list[list[str]]:
    """Place SAEs on processes: the most costly one first, where there is least so far."""
    order = list(configs)
    shares: list[list[str]] = [[] for _ in range(n_ranks)]
    costs = [0] * n_ranks
    for sae_id in sorted(order, key=lambda sae_id: -step_cost(configs[sae_id])):
        rank = costs.index(min(costs))
        shares[rank].append(sae_id)
        costs[rank] += step_cost(configs[sae_id])
    return [sorted(share, key=order.index) for share in shares]


def trained_by(shares: list[list[str]], rank: int) -> list[str]:
    """The SAEs that a process trains: its own, or else one, to take part in the stream."""
    return shares[rank] or shares[0][:1]
