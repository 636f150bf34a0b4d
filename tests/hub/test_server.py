"""The loopback Hub: huggingface_hub and SAELens talk to it, and it refuses what it should."""

from pathlib import Path

from tests.evaluation.planted import plant_sae
from tests.hub.conftest import run_client
from tests.hub.server import LoopbackHub

START = """
import pytest, sys, torch
from sae_lens import SAE as Lens
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError
api, folder = HfApi(), sys.argv[1]
def files(*names):
    return [CommitOperationAdd(f"a/{name}", f"{folder}/{name}") for name in names]
def commit(*operations, **options):
    return api.create_commit("me/saes", list(operations), commit_message="SAEs", **options)
def refused(status, what, *arguments, **options):
    with pytest.raises(HfHubHTTPError) as error:
        what(*arguments, **options)
    assert error.value.response.status_code == status
def card(text):
    return CommitOperationAdd("README.md", text.encode())
SAE = files("cfg.json", "sae_weights.safetensors")
"""


def client(hub: LoopbackHub, tmp_path: Path, program: str) -> None:
    """Run a program that talks to a Hub in a process whose cache is empty."""
    folder = plant_sae(tmp_path / "sae", d_in=8)
    status, output = run_client(hub, "-c", START + program, folder, home=tmp_path / "home")
    assert status == 0, output


def test_an_sae_is_loaded_at_a_revision(hub: LoopbackHub, tmp_path: Path) -> None:
    program = """
from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.hub import load
api.create_repo("me/saes", private=True)
commit(*SAE)
api.create_tag("me/saes", tag="v1")
other = Lens.load_from_disk(folder)
other.W_dec.data.neg_()
other.save_model(folder)
now = commit(*files("cfg.json", "sae_weights.safetensors"))
assert torch.equal(load("me/saes", "a", revision=now.oid).W_dec, other.W_dec)
then = load("me/saes", "a", revision="v1", dtype="float64")
assert torch.equal(then.W_dec, -other.W_dec.double())
refused(404, load, "me/saes", "a", revision="v2")
for sae_id in ("b", "../a"):
    with pytest.raises(UserError, match=sae_id):
        load("me/saes", sae_id, revision="v1")
"""
    client(hub, tmp_path, program)


def test_what_the_hub_refuses_is_refused(hub: LoopbackHub, tmp_path: Path) -> None:
    program = """
refused(403, api.create_repo, "others/saes")
api.create_repo("my-lab/saes")
api.create_repo("me/saes")
refused(409, api.create_repo, "me/saes")
first = commit(*SAE)
refused(412, commit, card("# Late"), parent_commit="0" * 40)
for metadata in (
    "base_model: gpt2-small", "datasets: [/var/data]", "a: [", "x: .nan",
    "model-index: [{name: a, results: [{metrics: [{type: l0}]}]}]",
):
    with pytest.raises((ValueError, HfHubHTTPError)):
        commit(card(f"---\\n{metadata}\\n---\\n# SAEs"))
commit(card("---\\nbase_model: google/gemma-2-2b\\n---\\n# SAEs"))
refused(400, commit, CommitOperationAdd("a/note.txt", b"hf_" + b"a" * 34))
refused(401, HfApi(token="hf_unknown").whoami)
refused(404, api.model_info, "me/nothing")
refused(404, api.model_info, "me/saes", revision="nothing")
"""
    client(hub, tmp_path, program)
    assert len(hub.repos["me/saes"].history()) == 3
