"""An upload from end to end: check, propose, ask, commit."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitOperationDelete, HfApi, get_session
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.repocard import REGEX_YAML_BLOCK
from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.local_saes import Submission, check_saes, repo_record
from sae_lens_c2r.hub.proposal import MAIN, Proposal, Target, propose, take_snapshot
from sae_lens_c2r.hub.repo_record import RepoRecord
from sae_lens_c2r.models.names import ModelName

_NOT_HERE = {401, 403, 404}


@dataclass(frozen=True)
class Published:
    """The state of the Hub after an upload."""

    commit: str  # of the branch, with all files
    url: str | None  # of the commit or of the pull request; none if nothing had to be sent
    sent: int  # how many files were


def upload(
    saes: Sequence[Path] | Submission,
    target: Target | str,
    *,
    confirm: Callable[[Proposal], bool] = lambda _: True,
    dry_run: bool = False,
    api: HfApi | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Published | None:
    """Publish SAEs with a card of all that their repository then has, in one commit.

    Args:
        saes: Folders, each with one or more SAEs, or a `Submission`, which says more of them.
        target: The repository and the branch, or the repository alone, like ``org/name``.
        confirm: Called with what would be sent; returns whether to send. By default everything
            is sent.
        dry_run: Whether to send nothing; the token then need not be allowed to write.
        api: Client of the Hub; by default as the environment says.
        tell: Called with lines on the progress.

    Returns:
        What is on the Hub; `None` if `confirm` said no, or after a dry run.

    Raises:
        UserError: If something is not fit to be published.

    huggingface_hub raises its own errors, also if the branch has moved, and the network's.
    """
    api = api or HfApi()
    target = Target(target) if isinstance(target, str) else target
    submission = saes if isinstance(saes, Submission) else Submission(saes)
    # Whether the Hub answers is said before anything is read, which may take long.
    if not dry_run:
        api.whoami()
    take_snapshot(api, target)
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        local = check_saes(submission, Path(scratch), tell)
        known = repo_record(submission, local, target.repo_id, tell)
        repo = as_the_hub_knows(api, known, tell, base_model=submission.base_model)
        proposal = propose(api, target, local, repo)
        if not confirm(proposal) or dry_run:
            return None
        return publish(api, proposal, tell=tell)


def as_the_hub_knows(
    api: HfApi, repo: RepoRecord, tell: Callable[[str], None], *, base_model: str | None = None
) -> RepoRecord:
    """Name the models and texts that the Hub has by their names there."""
    saes = repo.saes.values()
    models: dict[str, Any] = {}  # by their names here
    for name in sorted({sae.model for sae in saes if sae.model}):
        model = _ask(api.model_info, ModelName(name).in_transformer_lens, name)
        if model is None and name == base_model:
            should = "be a model on the Hub that this token sees"
            raise UserError("base_model", should, base_model)
        if model is None or "/" not in model.id:
            continue
        models[name] = model
        if model.private:
            tell(f"{model.id} is private: the card names the model in its text only.")
    texts = {sae.dataset for sae in saes if sae.dataset and "/" in sae.dataset}
    found = [_ask(api.dataset_info, name) for name in sorted(texts)]
    renamed = dict(repo.saes)
    for sae_id, sae in repo.saes.items():
        if sae.model in models and models[sae.model].id != sae.model:
            own = {"model": models[sae.model].id, "model_name": sae.model_name or sae.model}
            renamed[sae_id] = sae.model_copy(update=own)
    return repo.model_copy(
        update={
            "base_models": sorted({each.id for each in models.values() if not each.private}),
            "datasets": [each.id for each in found if each and not each.private],
            "saes": renamed,
        }
    )


def _ask(ask: Callable[[str], Any], *names: str | None) -> Any:
    """Return what the Hub says of the first name that this token may see."""
    for name in dict.fromkeys(filter(None, names)):
        try:
            return ask(name)
        except HFValidationError:
            continue
        except HfHubHTTPError as error:
            if error.response.status_code not in _NOT_HERE:
                raise
    return None


def publish(
    api: HfApi, proposal: Proposal, *, tell: Callable[[str], None] = lambda _: None
) -> Published:
    """Bring files to a branch in one commit, or none of them."""
    target, snapshot, files = proposal.target, proposal.snapshot, proposal.files
    if proposal.card_diff:
        _check_metadata(api, proposal.card)
    parent = snapshot.commit
    if parent is None:
        tell(f"Making {target.repo_id}, {'public' if target.public else 'private'}.")
        api.create_repo(target.repo_id, private=not target.public)
        parent = str(api.model_info(target.repo_id).sha)
    if target.revision != MAIN and not snapshot.has_branch:
        tell(f"Making the branch {target.revision}.")
        api.create_branch(target.repo_id, branch=target.revision, revision=parent)
    if not files:
        tell(f"{target.repo_id} has all {len(proposal.wanted)} files already.")
        return Published(parent, None, 0)
    tell(f"Sending {len(files)} files, {proposal.size / 1e6:,.1f} MB.")
    where: dict[str, Any] = {"revision": target.revision, "create_pr": target.create_pr}
    # Large files are stored first, which changes no branch; then one commit has all files.
    # A `.gitignore` there would leave files out of the commit, but for these rules.
    api.preupload_lfs_files(target.repo_id, files, gitignore_content="\n", **where)
    ids = [sae.sae_id for sae in proposal.saes]
    added = f"Add {ids[0]}" if len(ids) == 1 else f"Add {len(ids)} SAEs"
    made = api.create_commit(
        target.repo_id,
        [*files, *map(CommitOperationDelete, proposal.stale)],
        commit_message=added,
        parent_commit=parent,
        **where,
    )
    return Published(made.oid, made.pr_url or made.commit_url, len(files))


def _check_metadata(api: HfApi, card: str) -> None:
    """Raise unless the Hub accepts a card's metadata, before anything else is sent."""
    front_matter = REGEX_YAML_BLOCK.search(card)
    assert front_matter, "which every card of ours has"
    content = {"content": front_matter[0], "repoType": "model"}
    hf_raise_for_status(get_session().post(f"{api.endpoint}/api/validate-yaml", json=content))
