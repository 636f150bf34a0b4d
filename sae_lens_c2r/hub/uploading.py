"""An upload from end to end: prepare, propose, ask, publish, verify, tag."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError, OfflineModeIsEnabled  # type: ignore[attr-defined]
from safetensors import SafetensorError

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.local.prepare_upload import PreparedUpload, prepare_upload
from sae_lens_c2r.hub.proposal import Proposal, propose
from sae_lens_c2r.hub.remote.account import check_account
from sae_lens_c2r.hub.remote.difference import difference
from sae_lens_c2r.hub.remote.publish import Published, publish
from sae_lens_c2r.hub.remote.refusals import explained, unharmed
from sae_lens_c2r.hub.remote.snapshot import take_snapshot
from sae_lens_c2r.hub.remote.tags import set_tag
from sae_lens_c2r.hub.submission import SAEs, Submission
from sae_lens_c2r.hub.target import Target
from sae_lens_c2r.hub.verify import verify

_FAILURES = (HTTPError, OfflineModeIsEnabled, OSError, SafetensorError, UnicodeError)


def upload(
    saes: SAEs | Submission | PreparedUpload,
    target: Target,
    *,
    confirm: Callable[[Proposal], bool] = lambda _: True,
    check_published: bool = True,
    message: str | None = None,
    api: HfApi | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Published | None:
    """Publish SAEs with a card of all that their repository then has, in one commit.

    Args:
        saes: Folders, each of one SAE or of many, or SAEs in memory by their ids; with what
            else is said of them, a `Submission`; or what `prepare_upload` has made of one.
        target: Where to.
        confirm: Shown what would be sent; nothing is unless it returns `True`. By itself all
            is sent.
        check_published: Whether to load the SAEs from the Hub without this package.
        message: Of the commit; by itself it names what is added.
        api: The Hub; by itself that of the environment.
        tell: Told of what is done.

    Returns:
        What is on the Hub; `None` if `confirm` said no.

    Raises:
        UserError: If something keeps them from the Hub, with what is and is not there.
        KeyboardInterrupt: With that, too, if it was interrupted while sending.
    """
    api = api or HfApi()
    with TemporaryDirectory(prefix="sae-lens-c2r-") as scratch:
        try:
            if not isinstance(saes, PreparedUpload):
                submission = Submission.of(saes)
                saes = prepare_upload(
                    submission, target.repo_id, scratch=Path(scratch), tell=tell
                )
            proposal = propose(api, target, saes, tell)
            if not confirm(proposal):
                return None
            if proposal.difference.files:
                exists = proposal.difference.snapshot.private is not None
                check_account(api, target, exists=exists)
        except _FAILURES as error:
            raise UserError(f"Nothing was sent. {explained(error, target.repo_id)}") from error
        published = _publish(api, proposal, message, tell)
        try:
            if check_published:
                _verify(api, proposal, published, tell)
            if target.tag is not None:
                _tag(api, target, target.tag, published, tell)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Interrupted. {_done(target, published)} It was not verified or tagged; "
                "running the same again does both."
            ) from None
        return published


def _publish(
    api: HfApi, proposal: Proposal, message: str | None, tell: Callable[[str], None]
) -> Published:
    target, prepared = proposal.target, proposal.prepared
    ids = [sae.sae_id for sae in prepared.saes]
    by_itself = f"Add {ids[0]}" if len(ids) == 1 else f"Add {len(ids)} SAEs"
    files, first = prepared.content.files, proposal.difference
    try:
        message = message or by_itself
        return publish(api, target, files, message=message, first=first, tell=tell)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_interrupted(api, proposal)) from None
    except OSError as error:
        raise UserError(f"{unharmed(target)} {explained(error, target.repo_id)}") from error


def _interrupted(api: HfApi, proposal: Proposal) -> str:
    target, again = proposal.target, "Running the same again goes on."
    try:
        missing = difference(proposal.prepared.content.files, take_snapshot(api, target))
    except (HTTPError, UserError):
        return f"Interrupted. {target.repo_id} is as it was, or complete. {again}"
    if missing.files:
        return f"Interrupted. Nothing of this upload is on {target.repo_id} yet. {again}"
    return f"Interrupted. {target.repo_id} has everything. {again}"


def _verify(
    api: HfApi, proposal: Proposal, published: Published, tell: Callable[[str], None]
) -> None:
    target = proposal.target
    tell("Loading it from the Hub, in SAELens alone.")
    try:
        verify(api, target, proposal.prepared.saes, commit=published.commit)
    except UserError as error:
        untagged = f" The tag {target.tag} was not set." if target.tag else ""
        raise UserError(
            f"{_done(target, published)}{untagged} But it was not verified: {error}"
        ) from error


def _tag(
    api: HfApi, target: Target, tag: str, published: Published, tell: Callable[[str], None]
) -> None:
    try:
        set_tag(api, target.repo_id, tag, published.commit)
    except HTTPError as error:
        raise UserError(
            f"{_done(target, published)} But the tag {tag} may not have been set: "
            f"{explained(error, target.repo_id)} Running the same again sets it."
        ) from error
    tell(f"Tagged {tag}.")


def _done(target: Target, published: Published) -> str:
    return f"{target.repo_id} has everything, in the commit {published.commit[:8]}."
