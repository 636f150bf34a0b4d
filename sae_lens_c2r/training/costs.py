"""What training a plan takes, in bytes: on disk and in memory."""

from collections.abc import Iterable

from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.util import str_to_dtype

from sae_lens_c2r.releases.model import LanguageModel
from sae_lens_c2r.training.plan import Plan


def weight_bytes(config: TrainingSAEConfig) -> int:
    """Size of an SAE's weights: an encoder, a decoder and their biases."""
    numbers = 2 * config.d_in * config.d_sae + config.d_in + config.d_sae
    return str_to_dtype(config.dtype).itemsize * numbers


def disk_bytes(plan: Plan) -> int:
    """What the trained SAEs will take."""
    return sum(weight_bytes(config) for config in plan.saes.values())


def checkpoint_bytes(plan: Plan) -> int:
    """What a checkpoint takes: weights, Adam's moments, latents' counters."""
    return sum(3 * weight_bytes(each) + 8 * each.d_sae for each in plan.saes.values())


def memory_bytes(plan: Plan, sae_ids: Iterable[str] | None = None, *, n_parts: int = 1) -> int:
    """What training takes beside the model, about.

    Args:
        plan: The plan.
        sae_ids: The SAEs that one process trains; all where there is but one.
        n_parts: Processes that share each batch.

    Returns:
        Bytes in that process.
    """
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
