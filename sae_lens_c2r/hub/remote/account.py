"""Whether a token may write, asked before anything is sent."""

from typing import Any

from huggingface_hub import HfApi
from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub.remote.refusals import FORBIDDEN, status_of
from sae_lens_c2r.hub.target import Target

_WHERE = "in the Hub's settings, under Access Tokens"


def check_account(api: HfApi, target: Target, *, exists: bool) -> None:
    """Raise unless the token may write, with what it lacks."""
    account = api.whoami()
    name, token = account["name"], account.get("auth", {}).get("accessToken", {})
    role, owner = token.get("role"), target.repo_id.partition("/")[0]
    if role == "read":
        raise UserError(
            f"The token of {name} should have the role `write`. Found `read`: make another "
            f"one {_WHERE}."
        )
    if target.create_pr and exists:  # which anybody may
        return
    places = [name, *(each["name"] for each in account.get("orgs", []))]
    if owner not in places:
        raise UserError(
            f"`repo-id` should be of {' or '.join(places)}, who the token is of. Found "
            f"{target.repo_id}. An existing repository of somebody else's takes `--create-pr`."
        )
    if not (_may_write(api, target.repo_id) if exists else _may_create(token, owner)):
        lacks = target.repo_id if exists else f"the repositories of {owner}"
        raise UserError(
            f"The token of {name} is fine-grained and lacks write access to {lacks}: add "
            f"`repo.write` for it {_WHERE}."
            if role == "fineGrained"
            else f"{name} should have write access to {lacks}, which {owner} may give."
        )


def _may_write(api: HfApi, repo_id: str) -> bool:
    try:
        api.auth_check(repo_id, write=True)
    except HTTPError as error:
        if status_of(error) == FORBIDDEN:
            return False
        raise
    return True


def _may_create(token: dict[str, Any], owner: str) -> bool:
    """Whether a token may make a repository: there is none yet to ask the Hub about."""
    scopes = token.get("fineGrained", {}).get("scoped", [])
    return token.get("role") != "fineGrained" or any(
        scope.get("entity", {}).get("name") == owner
        and "repo.write" in scope.get("permissions", [])
        for scope in scopes
    )
