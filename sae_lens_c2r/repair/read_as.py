"""SAEs that are read as a plan says, whatever they say themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sae_lens import SAE, TrainingSAE

from sae_lens_c2r.saes.sources import Source
from sae_lens_c2r.training.plan import Plan, runner_config

# Of an SAE's metadata, what SAELens's runner is to be told again.
READING = (
    *("model_class_name", "prepend_bos", "seqpos_slice", "exclude_special_tokens"),
    *("sequence_separator_token", "disable_concat_sequences", "model_from_pretrained_kwargs"),
)


@dataclass(frozen=True)
class ReadAs(Source):
    """An SAE whose config says what it is read on, whatever it says by itself."""

    metadata: Mapping[str, Any] = field(default_factory=dict)

    def load(self, device: str) -> SAE[Any] | TrainingSAE[Any]:
        """The SAE, as of `Source`, with a config that says so."""
        sae = super().load(device)
        for key, value in self.metadata.items():
            sae.cfg.metadata[key] = value
        return sae


def read_as_planned(source: Source, plan: Plan, sae_id: str) -> Source:
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
    return ReadAs(**vars(source), metadata=read)
