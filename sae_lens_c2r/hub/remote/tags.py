"""Tags on the Hub: the one of an upload, and those that stand in its way."""

from contextlib import suppress

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.names import MAIN
from sae_lens_c2r.hub.remote.difference import Difference
from sae_lens_c2r.hub.remote.refusals import CONFLICT, status_of
from sae_lens_c2r.hub.target import Target


def check_tags(api: HfApi, target: Target, missing: Difference) -> None:
    """Raise where the tag is taken, or the branch is a tag."""
    if missing.snapshot.private is None or (target.tag is None and target.revision == MAIN):
        return
    for tag in api.list_repo_refs(target.repo_id).tags:
        if tag.name == target.revision:
            raise UserError(f"`revision` should be a branch. Found the tag {tag.name}.")
        done = not missing.files and tag.target_commit == missing.snapshot.commit
        if tag.name == target.tag and not done:
            raise UserError(
                f"`tag` should be new. Found {target.tag} at {tag.target_commit[:8]} of "
                f"{target.repo_id}."
            )


def set_tag(api: HfApi, repo_id: str, tag: str, commit: str) -> None:
    """Tag a commit, unless it has that tag already."""
    try:
        api.create_tag(repo_id, tag=tag, revision=commit)
    except HTTPError as error:
        if status_of(error) == CONFLICT:
            with suppress(HTTPError):
                tags = api.list_repo_refs(repo_id).tags
                if any(each.name == tag and each.target_commit == commit for each in tags):
                    return
        raise
