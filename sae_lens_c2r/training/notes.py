"""Notes on a plan, to be read before it is trained, a line each."""

from collections.abc import Iterator

from sae_lens_c2r._support.errors import counted
from sae_lens_c2r.releases.model import SyntheticModel
from sae_lens_c2r.training.plan import Plan


def notes_on(plan: Plan) -> Iterator[str]:
    """A line on each option that SAELens lacks, or that will not do what it says."""
    yield from plan.start_notes
    if (multiple := plan.norm_multiple) is not None:
        yield f"Tokens whose norm is above {multiple:g} times the median are left out."
    for steps in sorted(set(plan.k_anneal_steps.values())):
        annealed = [plan.saes[i] for i, each in plan.k_anneal_steps.items() if each == steps]
        names = sorted({config.architecture() for config in annealed})
        sizes = sorted({"d_in" if each.d_in <= each.d_sae else "d_sae" for each in annealed})
        yield (
            f"k falls from {' or '.join(sizes)} over the first {counted(steps, 'step')} of "
            f"{counted(len(annealed), 'SAE')}: {', '.join(names)}."
        )
    if "dtype" in plan.runner:
        yield "Without `runner.dtype`: activations are of the model's dtype."
    if "dead_feature_threshold" in plan.runner:
        yield "Without `runner.dead_feature_threshold`: SAELens does not read it."
    if plan.runner.get("use_chat_formatting"):
        yield "With `runner.use_chat_formatting`, each text is one turn of a user."
    asked = plan.release.runner.get("logger")
    if asked and asked.get("log_to_wandb", True) and asked.get("log_weights_to_wandb", True):
        yield "Without `runner.logger.log_weights_to_wandb`: SAEs are written to `--out` alone."
    new = [seed for sae_id, seed in plan.seeds.items() if sae_id not in plan.starts]
    source = plan.release.source
    if isinstance(source, SyntheticModel) and source.config["seed"] in new:
        yield (
            "Warning: `sae.seed` should differ from `synthetic_model.config.seed`. Drawn from "
            "the same seed, latents begin pointing away from features."
        )
    if in_vain := plan.autocast_in_vain:
        fields = " and ".join(f"`runner.{name}`" for name in in_vain)
        yield f"Without {fields}: {plan.device} is not known to be fast in bfloat16."
    of_model = plan.runner.get("model_from_pretrained_kwargs") or {}
    key = next((key for key, value in of_model.items() if "bfloat16" in str(value)), None)
    if key and not plan.fast_bfloat16:
        change = f"`--set runner.model_from_pretrained_kwargs.{key}=float32`"
        yield f"The model is in bfloat16, which may be slow here: {change} may be faster."
    window = plan.runner_value("dead_feature_window")
    revived = [id for id, each in plan.saes.items() if getattr(each, "aux_loss_coefficient", 0)]
    if revived and window >= plan.steps:
        yield (
            f"Warning: `runner.dead_feature_window` is {window:,}, but the training has "
            f"{counted(plan.steps, 'step')}. No dead latent is revived."
        )
    yield from _penalty_notes(plan)


def _penalty_notes(plan: Plan) -> Iterator[str]:
    """A warning of each penalty that is not applied, or not at its full coefficient."""
    for sae_id, config in plan.saes.items():
        for name in ("c2r_warm_up_steps", "ort_warm_up_steps"):
            if (steps := getattr(config, name, 0)) > plan.steps:
                yield (
                    f"Warning: `sae.{name}` is {steps:,}, but the training has {plan.steps:,} "
                    f"steps. {sae_id} never reaches its full coefficient."
                )
        for penalty in ("c2r", "ort"):
            if getattr(config, f"{penalty}_coefficient", 0) > 0:
                interval = getattr(config, f"{penalty}_interval")
                due = range(0, plan.steps, interval)
                # While it warms up, the coefficient is 0 at the first step.
                first = getattr(config, f"{penalty}_warm_up_steps") > 0
                if due and due[-1] < (getattr(config, f"{penalty}_start_step") or first):
                    yield (
                        f"Warning: with `sae.{penalty}_interval` {interval:,}, the penalty of "
                        f"{sae_id} is never applied in {counted(plan.steps, 'step')}."
                    )
