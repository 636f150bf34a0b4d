"""What an upload would do: where to, with which files, and what the Hub knows of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import unified_diff

from huggingface_hub import HfApi

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.card.content import README, Content
from sae_lens_c2r.hub.local.gather import Gathered
from sae_lens_c2r.hub.names import check_names, known_dataset, known_model
from sae_lens_c2r.hub.remote.plan import Plan, PlannedFile, Read, make_plan

MAIN = "main"


@dataclass(frozen=True)
class Proposal:
    """What is shown before anything is sent.

    Args:
        plan: The files that would be.
        removed: The keys that were removed from the SAEs' configs, by their ids.
        card_diff: What would change in `README.md`, as of `diff -u`.
    """

    plan: Plan
    removed: dict[str, list[str]]
    card_diff: str


@dataclass(frozen=True)
class Target:
    """Where an upload goes.

    Args:
        repo_id: The repository, ``org/name``.
        revision: The branch, made if there is none.
        tag: A tag for the commit, set when all has been verified.
        create_pr: Whether to propose the commit instead of making it.
        public: Whether a repository that is made is public.

    Raises:
        UserError: If a name is not fit for the Hub.
    """

    repo_id: str
    revision: str = MAIN
    tag: str | None = None
    create_pr: bool = False
    public: bool = False

    def __post_init__(self) -> None:
        check_names(repo_id=self.repo_id, revision=self.revision, tag=self.tag)
        if self.tag and self.create_pr:
            raise UserError("`tag` should be left out with `create-pr`: nothing is merged yet.")


def known_to_hub(api: HfApi, content: Content, tell: Callable[[str], None]) -> Content:
    """Ask the Hub for the model and the texts, and leave out those that it does not have.

    Args:
        api: The Hub.
        content: What a repository is to hold.
        tell: Told of models that are private or gated.

    Returns:
        The content with those that it has.
    """
    trainings = [sae.training for sae in content.facts.saes.values()]
    models = set()
    names = content.facts.base_models or {training.model for training in trainings}
    for name in sorted(filter(None, names)):
        model = known_model(api, name)
        if model is not None and model.private:
            tell(f"{model.id} is private: the card's metadata do not name it, its text does.")
        elif model is not None:
            models.add(model.id)
        if model is not None and model.gated:
            tell(f"{model.id} is gated: who uses its SAEs has to accept its terms on the Hub.")
    texts = sorted({training.dataset for training in trainings if training.dataset})
    datasets = [found for text in texts if (found := known_dataset(api, text))]
    known = {"base_models": sorted(models), "datasets": datasets}
    return replace(content, facts=content.facts.model_copy(update=known))


def propose(api: HfApi, target: Target, gathered: Gathered) -> Proposal:
    """Compare what has been gathered with what the Hub has. Nothing is written.

    Args:
        api: The Hub.
        target: Where it is to go.
        gathered: The SAEs, and what the repository is to hold of them.

    Returns:
        What would be sent.

    Raises:
        UserError: If the repository cannot be joined with, or the tag is taken.
    """
    before: list[bytes | None] = []

    def files(read: Read) -> Sequence[PlannedFile]:
        before.append(read(README))
        return gathered.content.joined_with(read)

    plan = make_plan(api, target.repo_id, files, revision=target.revision)
    if plan.repo_exists and (target.tag is not None or target.revision != MAIN):
        _check_refs(api, target, plan)
    new = next((file for file in plan.files if file.path_in_repo == README), None)
    diff: list[str] = []
    if new is not None:
        assert isinstance(new.content, bytes), "a card is written in memory"
        old, sent = (before[-1] or b"").decode(), new.content.decode()
        names = ("on the Hub", "to be sent")
        diff = list(unified_diff(old.splitlines(), sent.splitlines(), *names, lineterm=""))
    removed = {sae.sae_id: sae.removed for sae in gathered.saes if sae.removed}
    return Proposal(plan, removed, "\n".join(diff))


def _check_refs(api: HfApi, target: Target, plan: Plan) -> None:
    """Raise where the tag is taken, or the branch is a tag."""
    for tag in api.list_repo_refs(target.repo_id).tags:
        if tag.name == target.revision:
            raise UserError(f"`revision` should be a branch. Found the tag {tag.name}.")
        same = not plan.files and tag.target_commit == plan.parent
        if tag.name == target.tag and not same:
            raise UserError(
                f"`tag` should be new. Found {target.tag} at {tag.target_commit[:8]} of "
                f"{target.repo_id}."
            )
