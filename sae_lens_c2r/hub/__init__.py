"""SAEs on the Hugging Face Hub: published with a measured card."""

from sae_lens_c2r.hub.card import write_card
from sae_lens_c2r.hub.local_saes import Submission
from sae_lens_c2r.hub.proposal import Target, show_proposal
from sae_lens_c2r.hub.uploading import upload

__all__ = ["Submission", "Target", "show_proposal", "upload", "write_card"]
