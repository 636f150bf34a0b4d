"""SAEs that are read as a plan says, whatever they say themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sae_lens import SAE, TrainingSAE

from sae_lens_c2r.saes.sae_ref import SAERef
from sae_lens_c2r.training.plan import Plan, runner_config

# Of an SAE's metadata, what SAELens's runner is to be told again.
READING = (
    *("model_class_name", "prepend_bos", "seqpos_slice", "exclude_special_tokens"),
    *("sequence_separator_token", "disable_concat_sequences", "model_from_pretrained_kwargs"),
)


@dataclass(frozen=True)
class ReadAs(SAERef):
    """An SAE whose config says what it is read on, whatever it says by itself."""

    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    label: str | None = None

    @property
    def name(self) -> str:
        """What it is called where it is shown."""
        return self.label or super().name

    def load(self, device: str) -> SAE[Any] | TrainingSAE[Any]:
        """The SAE, as of `SAERef`, with a config that says so."""
        sae = super().load(device)
        for key, value in self.metadata.items():
            sae.cfg.metadata[key] = value
        return sae


def read_as_planned(source: SAERef, plan: Plan, sae_id: str) -> SAERef:
    """An SAE, to be read as one of a plan is trained: with the model and the tokens of that.

    Args:
        source: The SAE.
        plan: A plan of a language model.
        sae_id: Which SAE of it.

    Returns:
        The SAE.
    """
    config: Any = runner_config(plan, sae_ids=[sae_id])
    read = {name: getattr(config, name) for name in (*READING, "context_size", "model_name")}
    read["hook_name"] = config.hook_names_per_sae[sae_id]
    read["hook_head_index"] = config.hook_head_indices_per_sae[sae_id]
    return ReadAs(**{**vars(source), "metadata": read})
