"""SAEs on the Hugging Face Hub: published with a measured card."""

from importlib.metadata import version

from packaging.version import Version

from sae_lens_c2r._support.errors import UserError

# The penalty is used beside transformers 4, too, which needs a client older than 1.
if Version(found := version("huggingface-hub")) < Version("1.31"):
    advice = "transformers 4 needs an older one: publish from an environment with 5."
    raise UserError("huggingface-hub", "be 1.31 or newer, to publish", found, advice)

from sae_lens_c2r.hub.card import write_card
from sae_lens_c2r.hub.local_saes import Submission
from sae_lens_c2r.hub.proposal import Target, show_proposal
from sae_lens_c2r.hub.uploading import upload

__all__ = ["Submission", "Target", "show_proposal", "upload", "write_card"]
