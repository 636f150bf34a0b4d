"""An upload from end to end: gather, plan, ask, publish, verify, tag."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]
from safetensors import SafetensorError

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.local.gather import Gathered, SAEs, gather
from sae_lens_c2r.hub.proposal import MAIN, Proposal, Target, known_to_hub, propose
from sae_lens_c2r.hub.remote.plan import make_plan
from sae_lens_c2r.hub.remote.publish import Published, publish, unharmed
from sae_lens_c2r.hub.remote.refusals import CONFLICT, check_account, explained, status_of
from sae_lens_c2r.hub.verify import verify
from sae_lens_c2r.releases.model import Release


def upload(
    saes: SAEs,
    target: Target,
    *,
    agree: Callable[[Proposal], bool],
    release: Release | None = None,
    evaluation: Path | None = None,
    license: str | None = None,
    check_published: bool = True,
    api: HfApi | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Published | None:
    """Publish SAEs with a card of all that their repository then has, in one commit.

    Args:
        saes: Folders, each of one SAE or of many, or SAEs by their ids.
        target: Where to.
        agree: Shown what would be sent; nothing is unless it returns `True`.
        release: The release that they are of; by itself what their `training.json` names.
        evaluation: Their `evaluation.json`; by itself those beside the folders.
        license: Of their weights, as the Hub spells it; by itself the release's.
        check_published: Whether to load them from the Hub without this package.
        api: The Hub; by itself that of the environment.
        tell: Told of what is done.

    Returns:
        What is on the Hub; `None` if `agree` said no.

    Raises:
        UserError: If something keeps them from the Hub, with what is and is not there.
        KeyboardInterrupt: With the same, if it was interrupted while sending.
    """
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        try:
            gathered = gather(
                saes,
                target.repo_id,
                scratch=Path(scratch),
                release=release,
                evaluation=evaluation,
                license=license,
                tell=tell,
            )
        except (OSError, SafetensorError) as error:
            raise UserError(explained(error, target.repo_id)) from error
        return send(
            api or HfApi(),
            gathered,
            target,
            agree=agree,
            check_published=check_published,
            tell=tell,
        )


def send(
    api: HfApi,
    gathered: Gathered,
    target: Target,
    *,
    agree: Callable[[Proposal], bool],
    check_published: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> Published | None:
    """Publish what has been gathered.

    Args:
        api: The Hub.
        gathered: The SAEs, and what the repository is to hold of them.
        target: Where to.
        agree: Shown what would be sent; nothing is unless it returns `True`.
        check_published: Whether to load them from the Hub without this package.
        tell: Told of what is done.

    Returns:
        What is on the Hub; `None` if `agree` said no.

    Raises:
        UserError: If something keeps them from the Hub, with what is and is not there.
        KeyboardInterrupt: With the same, if it was interrupted while sending.
    """
    try:
        gathered = replace(gathered, content=known_to_hub(api, gathered.content, tell))
        proposal = propose(api, target, gathered)
        if not agree(proposal):
            return None
        if proposal.plan.files:
            exists = proposal.plan.repo_exists
            check_account(api, target.repo_id, exists=exists, create_pr=target.create_pr)
    except (HTTPError, OfflineModeIsEnabled, OSError, UnicodeEncodeError) as error:
        raise UserError(f"Nothing was sent. {explained(error, target.repo_id)}") from error
    published = _publish(api, target, gathered, tell)
    try:
        if check_published:
            tell("Loading it from the Hub, in SAELens alone.")
            _verify(api, target, gathered, published)
        if target.tag is not None:
            _tag(api, target.repo_id, target.tag, published)
            tell(f"Tagged {target.tag}.")
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Interrupted. {_done(target.repo_id, published)} It was not verified or tagged; "
            "running the same again does both."
        ) from None
    return published


def _verify(api: HfApi, target: Target, gathered: Gathered, published: Published) -> None:
    on_main = target.revision == MAIN and not target.create_pr
    try:
        verify(api, target.repo_id, gathered.saes, commit=published.commit, on_main=on_main)
    except UserError as error:
        untagged = f" The tag {target.tag} was not set." if target.tag else ""
        raise UserError(
            f"{_done(target.repo_id, published)}{untagged} But it was not verified: {error}"
        ) from error


def _tag(api: HfApi, repo_id: str, tag: str, published: Published) -> None:
    try:
        api.create_tag(repo_id, tag=tag, revision=published.commit)
    except HTTPError as error:
        if status_of(error) == CONFLICT:
            with suppress(HTTPError):
                if _is_at(api, repo_id, tag, published.commit):
                    return
        raise UserError(
            f"{_done(repo_id, published)} But the tag {tag} may not have been set: "
            f"{explained(error, repo_id)} Running the same again sets it."
        ) from error


def _is_at(api: HfApi, repo_id: str, tag: str, commit: str) -> bool:
    tags = api.list_repo_refs(repo_id).tags
    return any(each.name == tag and each.target_commit == commit for each in tags)


def _done(repo_id: str, published: Published) -> str:
    return f"{repo_id} has everything, in the commit {published.commit[:8]}."


def _publish(
    api: HfApi, target: Target, gathered: Gathered, tell: Callable[[str], None]
) -> Published:
    try:
        return publish(
            api,
            target.repo_id,
            gathered.content.joined_with,
            message=_message(gathered),
            revision=target.revision,
            private=not target.public,
            create_pr=target.create_pr,
            tell=tell,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(api, target, gathered)) from None
    except OSError as error:
        raise UserError(
            f"{unharmed(target.repo_id, target.revision)} {explained(error, target.repo_id)}"
        ) from error


def _message(gathered: Gathered) -> str:
    ids = [sae.sae_id for sae in gathered.saes]
    return f"Add {ids[0]}" if len(ids) == 1 else f"Add {len(ids)} SAEs"


def _interrupted(api: HfApi, target: Target, gathered: Gathered) -> str:
    again = "Running the same again goes on."
    try:
        plan = make_plan(
            api, target.repo_id, gathered.content.joined_with, revision=target.revision
        )
    except (HTTPError, UserError):
        return f"Interrupted. {target.repo_id} is as it was, or complete. {again}"
    if plan.files:
        return f"Interrupted. Nothing of this upload is on {target.repo_id} yet. {again}"
    return f"Interrupted. {target.repo_id} has everything. {again}"
