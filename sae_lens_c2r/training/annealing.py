"""k that falls over the first steps from the size of the inputs to what it is to be."""

from typing import Any

from sae_lens import TrainingSAE
from sae_lens.saes.sae import TrainingSAEConfig, TrainStepInput, TrainStepOutput

from sae_lens_c2r.releases.model import ReleaseError, SAESpec
from sae_lens_c2r.training.configs import K_ANNEAL_STEPS


def anneal_steps(spec: SAESpec, config: TrainingSAEConfig, n_steps: int) -> int:
    """Over how many steps the k of an SAE is to fall.

    Args:
        spec: The SAE, as the release has it.
        config: Its config.
        n_steps: Steps of its training.

    Returns:
        The number; 0 for a k that is the same at all steps.

    Raises:
        ReleaseError: If it is no number of steps, training would be over before, or the
            architecture has no k.
    """
    if not hasattr(config, "k"):
        if K_ANNEAL_STEPS in spec.fields.keys() - spec.shared:
            raise ReleaseError(
                f"`sae.{K_ANNEAL_STEPS}` should go with an architecture that has a `k`. Found "
                f"{config.architecture()} in {spec.sae_id}."
            )
        return 0
    steps = spec.fields.get(K_ANNEAL_STEPS, 0)
    below = max(n_steps, 1)
    if isinstance(steps, bool) or not isinstance(steps, int) or not 0 <= steps < below:
        raise ReleaseError(
            f"`sae.{K_ANNEAL_STEPS}` should be a number of steps below those of the training, "
            f"{n_steps:,}. Found {steps!r}."
        )
    return steps


def k_at(step: int, config: Any, steps: int) -> float:
    """The k of a step: it falls linearly, in whole numbers, from the size of the inputs.

    Args:
        step: The number of the step.
        config: The SAE's config, which has the k that it comes to.
        steps: Over how many steps.

    Returns:
        The k, which is never below the one that it comes to.
    """
    first = min(config.d_in, config.d_sae)
    if step >= steps or first <= config.k:
        return config.k
    return max(round(first + (config.k - first) * step / steps), config.k)


def anneal_k(sae: TrainingSAE[Any], steps: int) -> None:
    """Have an SAE train with a k that falls.

    The k depends on the number of the step alone, which SAELens keeps in its checkpoints, so
    that a run that is resumed has the same one.

    Args:
        sae: The SAE, whose architecture has a k.
        steps: Over how many steps.
    """
    forward = sae.training_forward_pass

    def with_k_of_step(step_input: TrainStepInput) -> TrainStepOutput:
        activation: Any = sae.activation_fn
        final = activation.k
        activation.k = k_at(step_input.n_training_steps, sae.cfg, steps)
        try:
            return forward(step_input)
        finally:  # what is evaluated between two steps has the k that it comes to
            activation.k = final

    sae.training_forward_pass = with_k_of_step  # type: ignore[method-assign]
