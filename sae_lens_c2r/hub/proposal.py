"""What an upload would do. Nothing is written to find out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import unified_diff

from huggingface_hub import HfApi

from sae_lens_c2r.hub.card.content import Content
from sae_lens_c2r.hub.local.prepare_upload import PreparedUpload
from sae_lens_c2r.hub.names import README
from sae_lens_c2r.hub.remote.difference import Difference, difference
from sae_lens_c2r.hub.remote.known import known_datasets, known_models
from sae_lens_c2r.hub.remote.snapshot import take_snapshot
from sae_lens_c2r.hub.remote.tags import check_tags
from sae_lens_c2r.hub.target import Target


@dataclass(frozen=True)
class Proposal:
    """What is shown before anything is sent.

    Args:
        target: Where it would go.
        prepared: The SAEs, and what the repository is to hold of them.
        difference: The files that would be sent.
    """

    target: Target
    prepared: PreparedUpload
    difference: Difference

    @property
    def removed(self) -> dict[str, list[str]]:
        """The keys that were removed from the SAEs' configs, by their ids."""
        return {sae.sae_id: sae.removed for sae in self.prepared.saes if sae.removed}

    @property
    def card_diff(self) -> str:
        """What would change in `README.md`, as of `diff -u`; empty if nothing would."""
        found = (file for file in self.difference.files if file.path_in_repo == README)
        card = next(found, None)
        if card is None:
            return ""
        assert isinstance(card.content, bytes), "a card is written in memory"
        old = (self.difference.snapshot.read(README) or b"").decode().splitlines()
        new = card.content.decode().splitlines()
        return "\n".join(unified_diff(old, new, "on the Hub", "to be sent", lineterm=""))


def propose(
    api: HfApi, target: Target, prepared: PreparedUpload, tell: Callable[[str], None]
) -> Proposal:
    """Compare an upload with what the Hub has; `tell` of models that are private or gated."""
    content = _known_to_hub(api, prepared.content, tell)
    missing = difference(content.files, take_snapshot(api, target))
    check_tags(api, target, missing)
    return Proposal(target, replace(prepared, content=content), missing)


def _known_to_hub(api: HfApi, content: Content, tell: Callable[[str], None]) -> Content:
    """The content with those models and texts that the Hub has, as it calls them."""
    trainings = [sae.training for sae in content.facts.saes.values()]
    models: list[str | None] = [*content.facts.base_models]
    models = models or [training.model for training in trainings]
    texts = [training.dataset for training in trainings]
    known = {
        "base_models": known_models(api, filter(None, models), tell),
        "datasets": known_datasets(api, filter(None, texts)),
    }
    return replace(content, facts=content.facts.model_copy(update=known))
