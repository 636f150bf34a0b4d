"""A plan before hours of training: what it takes, printed."""

from collections.abc import Iterable

from rich.console import Console
from rich.filesize import decimal
from sae_lens.constants import DTYPE_MAP
from sae_lens.saes.sae import TrainingSAEConfig
from sae_lens.util import str_to_dtype

from sae_lens_c2r._support.errors import counted
from sae_lens_c2r.training.data_parallel import group_size, place
from sae_lens_c2r.training.plan import Plan


def print_plan(plan: Plan, console: Console, *, n_ranks: int = 1) -> None:
    """Print the SAEs of a plan, what they are trained on, notes, and what that takes."""
    release, source = plan.release, plan.release.language_model
    console.print(f"{release.name} ({release.status}): {release.description}", markup=False)
    console.print(
        f"{source.hub_id or source.model} at {source.hook_name}, on {source.text.shown} in "
        f"rows of {source.context_size:,} tokens",
        markup=False,
    )
    for note in plan.start_notes:
        console.print(note, markup=False, soft_wrap=True)
    for sae_id, config in plan.saes.items():
        about = f"{config.d_sae:,} latents, {decimal(weight_bytes(config))}"
        console.print(f"{sae_id}: {config.architecture()}, {about}", markup=False)
    n_parts = group_size(plan, n_ranks)
    shares = place(plan.saes, n_ranks // n_parts)
    memory = max(memory_bytes(plan, share, n_parts=n_parts) for share in shares)
    at_once = ", all at once" if len(plan.saes) > 1 else ""
    console.print(
        f"{counted(len(plan.saes), 'SAE')}{at_once}: {counted(plan.steps, 'step')} of "
        f"{plan.batch_size:,}, {plan.samples:,} tokens each. About "
        f"{decimal(memory)} of memory"
        f"{' a process' if n_ranks > 1 else ''} beside the model, "
        f"{decimal(disk_bytes(plan))} on disk, and during training up to three checkpoints of "
        f"{decimal(checkpoint_bytes(plan))}."
    )
    if n_parts > 1:
        console.print(
            f"Each batch is split over {n_parts} processes, {plan.batch_size // n_parts:,} "
            "tokens each: the weights are those of one process up to rounding."
        )


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
    source, value = plan.release.language_model, plan.runner_value
    # The buffer that is shuffled, a part of the next, and the pass of the model on top. A batch
    # of the buffer is one row of text, however many rows a pass of the model takes.
    rows = 2 * value("n_batches_in_buffer") + value("store_batch_size_prompts")
    tokens = len(range(source.context_size)[slice(*value("seqpos_slice"))])
    asked = value("model_from_pretrained_kwargs") or {}
    dtype = str(asked.get("dtype") or asked.get("torch_dtype"))
    size = str_to_dtype(dtype if dtype in DTYPE_MAP else "float32").itemsize
    return states + acts + rows * tokens * configs[0].d_in * size
